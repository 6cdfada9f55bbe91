"""The flags that make a recipe, one for each of its settings, in the groups that the help shows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bayesify.cli.options import complete_data, complete_method, complete_prior


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


_DATA, _NETWORK, _MODEL, _TRAINING = "Data", "Network", "Model", "Training"

Data = Annotated[
    str,
    _option(
        _DATA,
        "A data set's name (see bayesify data), a .csv, .tsv or .npz file, or a folder of pictures.",
        autocompletion=complete_data,
    ),
]
Target = Annotated[
    str | None, _option(_DATA, "The CSV's target, by name or number. (default: the last)", metavar="COLUMN")
]
Ignore = Annotated[list[str] | None, _option(_DATA, "A CSV column to leave out.", metavar="COLUMN")]
Size = Annotated[int | None, _option(_DATA, "Resize a folder's pictures to this height and width.", metavar="PIXELS")]
Split = Annotated[int | None, _option(_DATA, "A published split's number, or the seed of the test part.", metavar="N")]
Normalise = Annotated[
    str | None,
    _option(
        _DATA,
        "126, 255, standard, symmetric or none. (default: 255 for images, standard for tables)",
        metavar="NAME",
    ),
]
Withhold = Annotated[
    list[str] | None, _option(_DATA, "Classes kept from training, as unknown test inputs.", metavar="CLASS")
]
LabelNoise = Annotated[
    str | None, _option(_DATA, "Swap labels of two classes at random, as 1,7=0.3.", metavar="A,B=CHANCE")
]
Validation = Annotated[
    float | None, _option(_DATA, "Part of the training examples to watch training by.", metavar="SHARE")
]

Network = Annotated[str, _option(_NETWORK, "mlp, cnn, or your own as module:factory.")]
Units = Annotated[
    str | None,
    _option(
        _NETWORK,
        "Hidden units of an mlp, one width or each. (default: 400; tables 50 for classes, 10 for numbers)",
        metavar="N[,N...]",
    ),
]
Layers = Annotated[int | None, _option(_NETWORK, "Hidden layers of an mlp. (default: 2)", metavar="N")]
Activation = Annotated[str | None, _option(_NETWORK, "relu, tanh, gelu, silu, elu or softplus. (default: relu)")]
Dropout = Annotated[float | None, _option(_NETWORK, "Dropout in the network.", metavar="RATE")]
Preset = Annotated[str | None, _option(_NETWORK, "Of a cnn: lenet, study-c or study-e. (default: lenet)")]

Method = Annotated[str, _option(_MODEL, "point, ensemble, mc-dropout or variational.", autocompletion=complete_method)]
Prior = Annotated[
    str | None,
    _option(
        _MODEL,
        "As normal:1, laplace:1, scale-mixture:0.75,1,0.000335. (default: normal:1 for variational)",
        autocompletion=complete_prior,
    ),
]
Likelihood = Annotated[
    str | None,
    _option(
        _MODEL,
        "categorical, bernoulli, gaussian:learned, gaussian:0.1, gaussian:heteroscedastic, poisson, gaussian-logits. "
        "(default: by the data)",
    ),
]
Estimator = Annotated[
    str | None, _option(_MODEL, "Of variational: weight, local or flipout. (default: weight; tables local)")
]
Bayesian = Annotated[str, _option(_MODEL, "Which weights are random: all, last_layer, or name patterns.")]
Members = Annotated[int | None, _option(_MODEL, "Of an ensemble. (default: 5)", metavar="N")]
P = Annotated[float | None, _option(_MODEL, "Of mc-dropout. (default: 0.2)", "--p", metavar="RATE")]
Start = Annotated[str | None, _option(_MODEL, "Where weights start: given, fresh, normal:0.1, uniform:-0.2,0.2.")]
Rho = Annotated[str | None, _option(_MODEL, "Where widths start before softplus: -5 or uniform:-5,-4. (default: -5)")]

Epochs = Annotated[
    int | None,
    _option(
        _TRAINING,
        "Passes over the data. (default: 10, more for small data: at least 2,000 steps)",
        metavar="N",
    ),
]
BatchSize = Annotated[int, _option(_TRAINING, "Examples per step.")]
LearningRate = Annotated[
    float | None, _option(_TRAINING, "Of the mean loss over a batch. (default: 0.001; tables 0.01)")
]
Optimizer = Annotated[str, _option(_TRAINING, "A name of torch's, as adam or sgd:momentum=0.9.")]
Schedule = Annotated[
    str | None, _option(_TRAINING, "constant, cosine, linear or step:0.5,0.1. (default: constant; tables cosine)")
]
TrainingDraws = Annotated[int, _option(_TRAINING, "Weight draws per step of variational.")]
Kl = Annotated[str, _option(_TRAINING, "uniform or reweighted, with ,warm-up=5,temperature=0.5.", "--kl")]
Patience = Annotated[
    int | None, _option(_TRAINING, "Stop when validation has not improved for so long.", metavar="EPOCHS")
]
Keep = Annotated[str, _option(_TRAINING, "The last state, or the best on validation: last, best.")]
TrainingSeed = Annotated[int, _option(_TRAINING, "Of weights, noise and shuffling (not of the split).")]
Device = Annotated[str, _option(_TRAINING, "cpu, cuda, cuda:1, mps.")]
