"""The flags that make a recipe, one for each of its settings, in the groups that the help shows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bayesify.cli.options import complete_data, complete_method, complete_prior


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


_DATA, _NETWORK, _MODEL, _METHOD, _TRAINING = "Data", "Network", "Model", "Settings of one method", "Training"

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

Network = Annotated[
    str,
    _option(
        _NETWORK,
        "mlp, cnn, or your own as module:factory, a function that returns an nn.Module, in a module of the current "
        "folder. Where it has parameters inputs (a number for tables, (channels, height, width) for pictures) and "
        "outputs, it is given them. Later commands on the run need --network too.",
    ),
]
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

Method = Annotated[
    str,
    _option(
        _MODEL,
        "point, ensemble, mc-dropout, variational, ivon, laplace, swag, sgld, sghmc or hmc.",
        autocompletion=complete_method,
    ),
]
Prior = Annotated[
    str | None,
    _option(
        _MODEL,
        "As normal:1, scale-mixture:0.75,1,0.000335, laplace:learned, cauchy:half-cauchy(1,layer), posterior:RUN, "
        "or by name: '*.bias=normal:10;*=normal:1'. (default: normal:1 where there is a posterior)",
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
Bayesian = Annotated[str, _option(_MODEL, "Which weights are random: all, last_layer, or name patterns.")]
Start = Annotated[
    str | None, _option(_MODEL, "Where weights start: given, fresh, glorot, normal:0.1, uniform:-0.2,0.2.")
]

Family = Annotated[str | None, _option(_METHOD, "Of variational: mean_field, full_rank, low_rank.")]
Rank = Annotated[int | None, _option(_METHOD, "Of variational's low_rank (10) and of swag (20).", metavar="N")]
Estimator = Annotated[
    str | None, _option(_METHOD, "Of variational: weight, local, flipout, moments. (default: weight; tables local)")
]
Gradient = Annotated[str | None, _option(_METHOD, "Of variational: reparametrised, stick_the_landing.")]
Bound = Annotated[str | None, _option(_METHOD, "Of variational: elbo, importance_weighted.")]
Rho = Annotated[str | None, _option(_METHOD, "Of variational: where widths start before softplus: -5, uniform:-5,-4.")]
Members = Annotated[int | None, _option(_METHOD, "Of an ensemble. (default: 5)", metavar="N")]
P = Annotated[
    float | None, _option(_METHOD, "Of mc-dropout. (default: 0.2; 0.05 for a table of numbers)", "--p", metavar="RATE")
]
HessianInit = Annotated[float | None, _option(_METHOD, "Of ivon: where its curvature starts.", metavar="H")]
Structure = Annotated[str | None, _option(_METHOD, "Of laplace: diagonal, kronecker, full. (default: kronecker)")]
LaplacePredictive = Annotated[str | None, _option(_METHOD, "Of laplace: linearised, weights.", "--predictive")]
PriorPrecision = Annotated[str | None, _option(_METHOD, "Of laplace: fixed, marginal_likelihood.")]
Begin = Annotated[float | None, _option(_METHOD, "Of swag: snapshots after this share of training.", metavar="SHARE")]
Chains = Annotated[int | None, _option(_METHOD, "Of sgld and sghmc (1) and of hmc (4).", metavar="N")]
Samples = Annotated[int | None, _option(_METHOD, "Kept of each chain: sgld, sghmc (100), hmc (500).", metavar="N")]
BurnIn = Annotated[float | None, _option(_METHOD, "Of sgld and sghmc: the share that is not kept.", metavar="SHARE")]
Cycles = Annotated[int | None, _option(_METHOD, "Of sgld and sghmc: cosine cycles of the step size.", metavar="N")]
Friction = Annotated[float | None, _option(_METHOD, "Of sghmc. (default: 0.1)", metavar="SHARE")]
WarmUp = Annotated[int | None, _option(_METHOD, "Of hmc: steps that adapt and are not kept.", metavar="N")]

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
    float | None,
    _option(
        _TRAINING,
        "Of the mean loss over a batch. (default: 0.001; tables 0.01; ivon 0.03; sgld 0.1; sghmc 0.02; numbers less)",
    ),
]
Optimizer = Annotated[str, _option(_TRAINING, "A name of torch's, as adam or sgd:momentum=0.9.")]
Schedule = Annotated[
    str | None,
    _option(_TRAINING, "constant, cosine, linear or step:0.5,0.1. (default: constant; tables and ivon cosine)"),
]
TrainingDraws = Annotated[int, _option(_TRAINING, "Weight draws per step of variational and ivon.")]
Kl = Annotated[str, _option(_TRAINING, "uniform or reweighted, with ,warm-up=5,temperature=0.5.", "--kl")]
Patience = Annotated[
    int | None, _option(_TRAINING, "Stop when validation has not improved for so long.", metavar="EPOCHS")
]
Keep = Annotated[str, _option(_TRAINING, "The last state, or the best on validation: last, best.")]
TrainingSeed = Annotated[int, _option(_TRAINING, "Of weights, noise and shuffling (not of the split).")]
Device = Annotated[str, _option(_TRAINING, "cpu, cuda, cuda:1, mps.")]
