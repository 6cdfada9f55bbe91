"""Is this input of a kind that the network was trained on? A check that is fitted on the training inputs alone.

Scores of the prediction: `entropy`, `mutual_information`, `confidence` (one minus it), `spread` (the standard deviation
of the label's probability, or of the mean) and `energy`, `-log sum exp(logits)` (Liu et al., 2020, arXiv:2010.03759).
Scores of features `h(x)`, which are the last hidden layer, scaled to length 1 for `knn`, or small inputs themselves,
or the edges of small images:

    mahalanobis  the distance of h to the nearest class mean, under one covariance (Lee et al., 2018, arXiv:1807.03888)
    knn          the distance of h to its k-th nearest neighbour in training (Sun et al., 2022, arXiv:2204.06507)

Far from the data a network may be sure of its answer, and its hidden layer may have been taught to ignore what is
different; distances between inputs still see it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import runs
from bayesify.decisions.acquisition import check_draws
from bayesify.decisions.edges import edges
from bayesify.decisions.provenance import check_method
from bayesify.errors import RunError, at_least, choose, whole_number
from bayesify.functional.inputs import count
from bayesify.functional.selection import is_normalisation, owner_of
from bayesify.likelihoods.labels import Labels
from bayesify.methods import saving
from bayesify.runs import tensor_files
from bayesify.training.batches import take, to_device
from bayesify.training.users_data import as_inputs

if TYPE_CHECKING:
    from bayesify.methods import Method
    from bayesify.predictive import Predictive

OF_PREDICTIONS = ("entropy", "mutual_information", "confidence", "spread", "energy")
OF_FEATURES = ("mahalanobis", "knn")
# Features that do not use the network.
OF_INPUTS = ("input", "edges")
SCORES = (*OF_PREDICTIONS, *OF_FEATURES)
# Why an input is not answered.
UNLIKE = "unlike the training data"
_SAVED = ("by", "coverage", "neighbours", "layer", "draws", "seed")
# Sets of weights whose features are used where a method has no mean weights, and training inputs that are kept at most.
_VIEWS, _KEPT, _AT_ONCE, _FEW = 5, 10_000, 1000, 8
# Numbers of an input that is compared itself: distances between larger ones say little about their kind.
_SMALL = 1024
# A saved check of a stranger may not make a prediction take hours.
_MOST_DRAWS = 10_000


class UnknownInputs:
    """A check for inputs of an unknown kind, fitted on the training inputs of a method.

    Args:
        bnn: a fitted method.
        x: its training inputs. Of more than 10,000 an even selection is kept.
        by: `knn`, `mahalanobis`, `entropy`, `mutual_information`, `confidence`, `spread` or `energy`.
        coverage: the share of known inputs to accept; the threshold is the quantile of the training inputs' scores.
            A training input is compared with the others only, but its network has seen it: inputs that are new and of
            a known kind are accepted a little less often.
        neighbours: which nearest neighbour `knn` measures the distance to.
        layer: whose inputs are the features: the name of a module, `last` (the last one with weights, so its inputs
            are the last hidden layer), `input` for the inputs of the network themselves, unscaled, or `edges` for
            the edges of small grey images, which depend little on the width and the slant of strokes.
            None is `input` where an input has at most 1,024 numbers (a table, small images), otherwise `last`.
        calibration: held-out inputs of a known kind for the threshold, instead of the training inputs.
        draws: posterior draws, for scores of the prediction.
        seed: of the draws.

    Raises:
        ValueError: the name is unknown, or the score does not suit the likelihood or the network.

    Examples:
        >>> check = bf.UnknownInputs(bnn, x, by="knn", coverage=0.95)
        >>> far = torch.full((1, 2), 50.0)
        >>> check.accept(x).double().mean() > 0.9, check.accept(far)
        (tensor(True), tensor([False]))

    """

    def __init__(
        self,
        bnn: Method,
        x: Any,
        by: str = "knn",
        *,
        coverage: float = 0.99,
        neighbours: int = 5,
        layer: str | None = None,
        calibration: Any = None,
        draws: int = 100,
        seed: int = 0,
    ) -> None:
        check_method(bnn)
        choose("score of unknown inputs", by, SCORES)
        if isinstance(coverage, str) or not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        self.bnn, self.by, self.draws, self.seed = bnn, by, at_least("draws", draws, 1), whole_number("seed", seed)
        self.coverage, self.neighbours = coverage, at_least("neighbours", neighbours, 1)
        self._tensors: dict[str, Tensor] = {}
        x = as_inputs(x, bnn.network.dtype, columns=bnn.column_names)
        bnn.predict(take(x, slice(1)), draws=1)  # refuses inputs that the network does not take
        small = isinstance(x, Tensor) and x.is_floating_point() and x[0].numel() <= _SMALL
        self.layer = ("input" if small else "last") if layer is None else layer
        known = _evenly(x, _KEPT)
        if by in OF_FEATURES:
            if count(known) <= neighbours + 1:
                raise ValueError(f"{by} needs more than {neighbours + 1} training inputs, got {count(known)}")
            self._fit(known)
        if calibration is not None:
            scores = self.score(calibration)
        elif by == "knn":
            scores = self._distances(self._features(known), itself=True)
        else:
            scores = self.score(known)
        self.threshold = float(torch.quantile(scores.double(), coverage))

    def score(self, x: Any) -> Tensor:
        """How far each input is from what is known; the higher, the less known.

        Args:
            x: inputs, in the form that `fit` was given.

        Returns:
            Scores, `[batch]`.

        """
        if self.by in OF_FEATURES:
            features = self._features(as_inputs(x, self.bnn.network.dtype, columns=self.bnn.column_names))
            self._check_features(features)
            return self._distances(features) if self.by == "knn" else self._mahalanobis(features)
        parts = self.bnn.predict_in_parts(x, draws=self.draws, seed=self.seed)
        return torch.cat([score_of(part, self.by) for part in parts])

    def accept(self, x: Any) -> Tensor:
        """Which inputs are of a known kind: their score is at most the threshold.

        Args:
            x: inputs, in the form that `fit` was given.

        Returns:
            True where an input is accepted, `[batch]` bool.

        """
        return self.score(x) <= self.threshold

    def save(self, run: str | Path) -> Path:
        """Write the check into the folder of the method's run.

        Args:
            run: a run folder.

        Returns:
            The file. Training the run again deletes it.

        Raises:
            RunError: the folder is no run.

        """
        folder = Path(run)
        runs.read_config(folder)
        about = {name: getattr(self, name) for name in (*_SAVED, "threshold")}
        about["weights"] = saving.weights_digest(self.bnn)
        tensor_files.write(folder / runs.UNKNOWN, {"empty": torch.zeros(0), **self._tensors}, about)
        return folder / runs.UNKNOWN

    @classmethod
    def load(cls, run: str | Path, bnn: Method) -> UnknownInputs:
        """The check that `save` wrote.

        Args:
            run: the run folder.
            bnn: the method, as `bf.load` reads it from the same folder.

        Returns:
            The check.

        Raises:
            RunError: there is none, it is damaged, or it was made for other weights.

        """
        file = Path(run) / runs.UNKNOWN
        if not file.exists():
            raise RunError(f"{run} has no check for unknown inputs: make one with bayesify unknown {run}")
        tensors, about = tensor_files.read(file)
        missing = [name for name in (*_SAVED, "threshold") if name not in about]
        if missing or tensors.pop("empty", None) is None:
            raise RunError(f"{file} is damaged: make it again with bayesify unknown {run}")
        # Checks of earlier versions do not say for which weights they were made.
        if about.get("weights", None) not in (None, saving.weights_digest(bnn)):
            raise RunError(f"{file} was made for other weights: make it again with bayesify unknown {run}")
        check = cls.__new__(cls)
        vars(check).update({"bnn": bnn, "_tensors": tensors, **{name: about[name] for name in (*_SAVED, "threshold")}})
        try:
            check._check()  # noqa: SLF001 -- its own
        except ValueError as problem:
            raise RunError(f"{file} is damaged: {problem}; make it again with bayesify unknown {run}") from None
        return check

    def __repr__(self) -> str:
        return f"UnknownInputs(by={self.by!r}, coverage={self.coverage}, threshold={self.threshold:.4g})"

    def _check(self) -> None:
        """Refuse what `save` does not write: a checksum can be right for any content."""
        choose("score of unknown inputs", str(self.by), SCORES)
        at_least("neighbours", self.neighbours, 1)
        whole_number("seed", self.seed)
        if at_least("draws", self.draws, 1) > _MOST_DRAWS:
            raise ValueError(f"draws must be at most {_MOST_DRAWS:,}, got {self.draws}")
        if self.layer not in OF_INPUTS:
            _layer_name(self.bnn, str(self.layer))
        for name, value in (("coverage", self.coverage), ("threshold", self.threshold)):
            if not isinstance(value, int | float) or not abs(value) < 1e300:
                raise ValueError(f"{name} must be a number, got {str(value)[:40]!r}")
            setattr(self, name, float(value))
        for name in {"knn": ("known",), "mahalanobis": ("means", "precision")}.get(self.by, ()):
            if name not in self._tensors or self._tensors[name].ndim != 3 or not self._tensors[name].numel():
                raise ValueError(f"{name} must be a tensor with three axes")
            self._tensors[name] = self._tensors[name].double()
        if self.by == "mahalanobis" and len(set(self._tensors["precision"].shape[1:])) != 1:
            raise ValueError("precision must be square")
        if self.by not in {*OF_FEATURES, "spread", "mutual_information"} and self._is_of_numbers:
            raise ValueError(f"{self.by} is for classes")

    @property
    def _is_of_numbers(self) -> bool:
        return self.bnn.likelihood.kind != "classification"

    def _check_features(self, features: Tensor) -> None:
        """Refuse a check that was made for features of another size."""
        for name, tensor in self._tensors.items():
            if (tensor.shape[0], tensor.shape[-1]) != (features.shape[0], features.shape[-1]):
                raise RunError(
                    f"the check for unknown inputs does not fit the network: {name} is {list(tensor.shape)}, and an "
                    f"input has {features.shape[-1]} features in {features.shape[0]} views; make it again"
                )

    def _fit(self, known: Any) -> None:
        features = self._features(known)
        if self.by == "knn":
            self._tensors = {"known": features}
            return
        labels = self._labels(known)
        means, centred = [], []
        for view in features:
            classes = torch.stack([view[labels == label].mean(0) for label in labels.unique()])
            means.append(classes)
            centred.append(view - classes[torch.searchsorted(labels.unique(), labels)])
        deviations = torch.stack(centred)
        covariance = deviations.mT @ deviations / deviations.shape[1]
        # A share of the mean variance keeps directions that training never used from dividing by zero.
        ridge = 1e-3 * covariance.diagonal(dim1=1, dim2=2).mean(1) + 1e-12
        covariance += torch.diag_embed(ridge.unsqueeze(-1).expand(-1, covariance.shape[-1]))
        self._tensors = {"means": torch.stack(means), "precision": torch.linalg.inv(covariance)}

    def _labels(self, known: Any) -> Tensor:
        """The predicted class of each training input; one class for numbers."""
        if self._is_of_numbers:
            return torch.zeros(count(known), dtype=torch.int64)
        parts = self.bnn.predict_in_parts(known, draws=self.draws, seed=self.seed)
        labels = torch.cat([part.labels for part in parts])
        if labels.ndim > 1:
            raise ValueError("mahalanobis needs one label per input: use knn")
        return labels.cpu()

    def _distances(self, features: Tensor, *, itself: bool = False) -> Tensor:
        """The distance to the k-th nearest training input, averaged over views; a training input is not its own."""
        known, k = self._tensors["known"].to(features.device), self.neighbours + int(itself)
        # A matrix product copies all training inputs first: for a few inputs that takes three times as long.
        few = features.shape[1] <= _FEW
        mode = "donot_use_mm_for_euclid_dist" if few else "use_mm_for_euclid_dist_if_necessary"
        rows = []
        for piece in features.split(_AT_ONCE, 1):
            distances = torch.cdist(piece, known, compute_mode=mode)
            rows.append(distances.topk(min(k, known.shape[1]), largest=False).values[..., -1].mean(0))
        return torch.cat(rows)

    def _mahalanobis(self, features: Tensor) -> Tensor:
        means, precision = (self._tensors[name].to(features.device) for name in ("means", "precision"))
        rows = []
        for piece in features.split(_AT_ONCE, 1):
            away = piece.unsqueeze(2) - means.unsqueeze(1)
            squares = torch.einsum("vnci,vij,vncj->vnc", away, precision, away)
            rows.append(squares.amin(-1).clamp(min=0.0).sqrt().mean(0))
        return torch.cat(rows)

    @torch.no_grad()
    def _features(self, x: Any) -> Tensor:
        """The features of each input for one or several sets of weights, `[views, n, features]`, in double."""
        device = self.bnn.network.device
        if self.layer in OF_INPUTS:
            if not isinstance(x, Tensor):
                raise ValueError(f'layer="{self.layer}" needs inputs in one tensor: name a layer instead')
            if x.ndim < 2:
                raise ValueError(f"inputs must be [n, ...], got {list(x.shape)}: one input alone is x[None]")
            images = x.to(device)
            return (edges(images) if self.layer == "edges" else images.flatten(1).double()).unsqueeze(0)
        name = _layer_name(self.bnn, self.layer)
        views = []
        for theta in self._weights():
            rows = []
            for first in range(0, count(x), _AT_ONCE):
                piece = to_device(take(x, slice(first, first + _AT_ONCE)), device)
                rows.append(_inputs_of(self.bnn, name, theta, piece))
            views.append(torch.cat(rows))
        return _scaled(torch.stack(views).double(), self.by)

    def _weights(self) -> Tensor:
        try:
            return self.bnn.mean_weights.detach().unsqueeze(0)
        except ValueError:  # an ensemble, chains: each member sees in its own way
            return self.bnn.weights(range(min(_VIEWS, self.bnn.held or _VIEWS)), self.seed).detach()


def saved_check(bnn: Method) -> UnknownInputs | None:
    """The check for unknown inputs that is saved with a method's run.

    Args:
        bnn: a method, as `bf.load` reads it.

    Returns:
        The check; None where the run has none, or the method has no run.

    Raises:
        RunError: the check is damaged, or was made for other weights.

    """
    if bnn.run is None or not (Path(bnn.run) / runs.UNKNOWN).is_file():
        return None
    return UnknownInputs.load(bnn.run, bnn)


def score_of(predictive: Predictive, by: str) -> Tensor:
    """A score of predictions by name; the higher, the less known. A target's own dimensions are averaged.

    Args:
        predictive: the predictions.
        by: `entropy`, `mutual_information`, `confidence`, `spread` or `energy`.

    Returns:
        Scores, `[batch]`.

    Raises:
        ValueError: the score is for classes, and the predictions are numbers; or it needs several draws.

    """
    choose("score of predictions", by, OF_PREDICTIONS)
    if predictive.kind != "classification" and by not in {"spread", "mutual_information"}:
        raise ValueError(f"{by} is for classes, the predictions are numbers: use spread, knn or mahalanobis")
    if by in {"spread", "mutual_information"}:
        check_draws(predictive, by, "knn, mahalanobis" + (" or entropy" if predictive.kind == "classification" else ""))
    if by == "energy":
        if not isinstance(predictive.likelihood, Labels) or predictive.outputs.ndim != 3:
            raise ValueError("energy needs one logit per class and one label per input: use entropy")
        return -predictive.outputs.double().logsumexp(-1).mean(0)
    if by == "mutual_information":
        values = predictive.epistemic
    elif by == "spread":
        values = predictive.score("std") if predictive.kind == "classification" else predictive.epistemic.sqrt()
    elif by == "confidence":
        values = 1.0 - predictive.confidence
    else:
        values = predictive.entropy
    return values.double().reshape(len(predictive), -1).mean(1)


def _layer_name(bnn: Method, layer: str) -> str:
    """The module whose inputs are the features."""
    template = bnn.network.template
    if layer != "last":
        choose("layer", layer, [*OF_INPUTS, "last", *(name for name, _ in template.named_modules() if name)])
        return layer
    owners = [owner_of(place.name) for place in bnn.network.places]
    weighted = [name for name in owners if not is_normalisation(template.get_submodule(name))]
    return weighted[-1]


def _inputs_of(bnn: Method, name: str, theta: Tensor, x: Any) -> Tensor:
    """What a layer is given for inputs x, `[n, features]`; positions (tokens, pixels) are averaged."""
    seen: list[Tensor] = []
    network = bnn.network
    module = network.template.get_submodule(name)

    def note(_: Any, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    network.traced(x)  # its passes would call the hook too
    with network.lock:
        handle = module.register_forward_pre_hook(note)
        try:
            network.call(network.unflatten(theta), x)
        finally:
            handle.remove()
    features = seen[-1] if seen else None
    if not isinstance(features, Tensor) or len(features) != count(x):
        raise ValueError(f"layer {name!r} does not get one row per input: name another with layer=")
    return features if features.ndim == 2 else features.flatten(1, -2).mean(1)


def _scaled(features: Tensor, by: str) -> Tensor:
    """Directions alone, for neighbours; the length of features says more about contrast than about kind."""
    return torch.nn.functional.normalize(features, dim=-1) if by == "knn" else features


def _evenly(x: Any, most: int) -> Any:
    size = count(x)
    return x if size <= most else take(x, torch.linspace(0, size - 1, most).long())
