"""`Auto`: a network, a likelihood and data become a fitted method, chosen by the table in `methods/auto_table.py`."""

from __future__ import annotations

import logging
import sys
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify import likelihoods, networks, noise
from bayesify.errors import plain_number, positive, whole_number
from bayesify.evaluation import Evaluation, evaluate
from bayesify.functional.copying import as_module
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.labels import Labels
from bayesify.methods import METHODS
from bayesify.methods.auto_table import TRAINING_SHARE, Choice, Problem, choose, named_prior
from bayesify.methods.cards import CARDS
from bayesify.methods.checks import check_classes, check_likelihood, check_trained_weights
from bayesify.methods.defaults import enough_epochs, needs_whole_draws
from bayesify.methods.hmc.hmc import HMC
from bayesify.methods.hmc.requirements import check_network
from bayesify.methods.method import Method, NetworkLike, PriorLike
from bayesify.methods.summary import Summary
from bayesify.methods.usual_plan import is_table
from bayesify.predictive import Predictive
from bayesify.training.batches import Examples, TensorExamples
from bayesify.training.users_data import as_examples
from bayesify.training.warnings import classes_missing, warn
from bayesify.workflows.auto.held_out import recalibrated
from bayesify.workflows.auto.model import can_be_sampled, network_for, one_noise_for_all, settled_likelihood
from bayesify.workflows.auto.time_limit import TooLittleTimeError, sampling_within, training_within

logger = logging.getLogger("bayesify")

# The first layer of a network that standardises its inputs, after the flattening and the standardisation.
_FIRST_LAYER = 2
_FEWEST_HELD_OUT = 20


class Auto:
    """Choose a method for a network, its data and the time allowed, and fit it.

    The choice is made by a table (`docs/choosing.md`): Hamiltonian Monte Carlo where the posterior can be sampled in
    the time allowed, an ensemble that stops early above, a posterior of the last layer for large networks. `choice`
    and `reason` say what was chosen and why; `fit` also prints the reason.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. None makes a perceptron for a table:
            it standardises its inputs, and its width, depth and noise follow the number of rows.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian`. `gaussian` alone leaves the
            noise to the choice, and takes the units from the targets.
        prior: of the weights; None is the default of the choice.
        time: seconds that `fit` may take; None lets sampling take about two minutes, and other methods their
            usual plan.
        bayesian: which weights are random: `all`, `last_layer`, or name patterns such as `head.*`.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        seed: of the starting weights, where `fit` is not given one.

    Attributes:
        choice: what was chosen, a `Choice`; None before `fit`.
        reason: the choice in one sentence.
        method: the fitted method.

    Raises:
        ValueError: there is no likelihood, it is unknown, the time is not above 0, or a prior around trained weights is
            given without a network.
        TypeError: the likelihood is not one, or a class stands in the place of an instance.

    Examples:
        >>> bnn = bf.Auto(net, "categorical").fit((x, y), warm_up=40, samples=20, progress=False)
        >>> bnn.name, bnn.predict(x).probs.shape
        ('hmc', torch.Size([60, 3]))

    """

    def __init__(
        self,
        network: NetworkLike | None = None,
        likelihood: Likelihood | str | Mapping[str, Likelihood | str] | None = None,
        *,
        prior: PriorLike | None = None,
        time: float | None = None,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        if likelihood is None:
            raise ValueError('likelihood is needed: bf.Auto(net, "categorical"), or bf.Auto(likelihood="gaussian")')
        check_classes(network, prior)
        if isinstance(likelihood, Mapping):
            likelihood = likelihoods.Several(likelihood)
        if isinstance(likelihood, likelihoods.Several) and network is None:
            raise ValueError("several targets need a network that returns a dict: bf.Auto(net, likelihood)")
        if network is None:
            cure = "give your trained network, bf.Auto(net, likelihood)"
            check_trained_weights(prior, "the network that Auto makes", cure)
        # A text is kept: it leaves units and noise to the choice.
        check_likelihood(likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood)
        self.network, self.likelihood, self.prior = network, likelihood, prior
        self.time = None if time is None else positive("time", time)
        self.bayesian, self.output, self.seed = bayesian, output, seed
        self.choice: Choice | None = None
        self.method: Method | None = None

    @property
    def reason(self) -> str:
        """What was chosen and why, in one sentence; empty before `fit`."""
        return "" if self.choice is None else self.choice.reason

    def fit(
        self,
        data: Any,
        *,
        validation: Any = None,
        seed: int | None = None,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        progress: bool = True,
        run: str | Path | None = None,
        overwrite: bool = False,
        **settings: Any,
    ) -> Method:
        """Choose a method and fit it.

        Where the choice stops early and no validation data is given, a tenth of the examples is set aside for it.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`. A table needs a pair.
            validation: data like `data`, scored in training; early stopping uses it.
            seed: of everything random; None is that of the constructor.
            n_data: the number of examples, where a loader has no length.
            device: where to train.
            progress: print the choice, and show a bar (never when the output is not a terminal).
            run: a folder for checkpoints, history and the result.
            overwrite: allow a run folder that already holds a run.
            **settings: of the method or its `fit`, such as `epochs` or `members`; only methods that take all of them
                are chosen.

        Returns:
            The fitted method, an ordinary `Method`.

        Raises:
            ValueError: the data does not fit the network and the likelihood, no method takes the settings, or the time
                is too short.
            TypeError: a setting is unknown, or belongs to a network.

        """
        began = clock.perf_counter()
        of_network = sorted({"units", "layers", "activation"} & set(settings))
        if of_network:
            raise TypeError(
                f"{of_network[0]} is a setting of a network: give one, such as "
                "bf.Auto(bf.networks.mlp(inputs, outputs, units=50), likelihood)"
            )
        seed = whole_number("seed", self.seed if seed is None else seed)
        settings = {name: plain_number(value) for name, value in settings.items()}
        parsed = likelihoods.parse(self.likelihood) if isinstance(self.likelihood, str) else self.likelihood
        examples = as_examples(data, parsed, torch.float32 if self.network is None else self._dtype(seed), n_data)
        problem = self._problem(examples, parsed, seed)
        self._warn_of_missing_classes(examples, parsed)
        self.method = None
        while True:
            self.choice = choose(problem, self._given(settings))
            try:
                method, plan, parts = self._planned(examples, settings, seed, validation, device, began)
            except TooLittleTimeError:
                if self.choice.method != "hmc" or problem.too_slow:
                    raise
                # Slower than the table assumes: the next row that needs no sampling.
                problem = replace(problem, too_slow=True)
            else:
                break
        self._tell(progress)
        method.chosen = self.reason
        if self.time is not None and not CARDS[self.choice.method].collects:
            method.deadline = began + TRAINING_SHARE * self.time
        method.fit(
            parts[0], validation=parts[1], seed=seed, device=device, progress=progress, run=run, overwrite=overwrite,
            **plan,
        )  # fmt: skip
        method.deadline = None  # of this fit; the next one is an ordinary one
        if self.choice.recalibrate and parts[1] is not None:
            recalibrated(method, parts[1], run)
        self.method = method
        return method

    def predict(self, x: Any, **settings: Any) -> Predictive:
        """The predictions of the fitted method.

        Args:
            x: inputs.
            **settings: of the method's `predict`, such as `draws`.

        Returns:
            The predictive.

        """
        return self._fitted().predict(x, **settings)

    def evaluate(self, data: Any, **settings: Any) -> Evaluation:
        """The scores of the fitted method.

        Args:
            data: `(x, y)`, a `Dataset` or a `DataLoader`.
            **settings: of `bayesify.evaluate`, such as `ood`.

        Returns:
            The scores.

        """
        return evaluate(self._fitted(), data, **settings)

    def save(self, path: str | Path) -> Path:
        """Write the fitted method to a run folder that `bayesify.load` reads.

        Args:
            path: the folder.

        Returns:
            The folder.

        """
        return self._fitted().save(path)

    def summary(self, x: Any = None) -> Summary:
        """The summary of the fitted method.

        Args:
            x: a batch of inputs.

        Returns:
            The summary.

        """
        return self._fitted().summary(x)

    def _fitted(self) -> Method:
        if self.method is None:
            raise ValueError("nothing is fitted yet: call fit(data) first")
        return self.method

    def _given(self, settings: dict[str, Any]) -> list[str]:
        """The settings that restrict the choice."""
        return [*settings, *(["prior"] if self.prior is not None else [])]

    def _kind(self) -> str:
        """The kind of problem; several targets have the defaults of numbers, as in `usual_plan`."""
        text = self.likelihood
        kind = (likelihoods.parse(text) if isinstance(text, str) else text).kind
        return "classification" if kind == "classification" else "regression"

    def _dtype(self, seed: int) -> torch.dtype:
        assert self.network is not None
        parameters = list(as_module(self.network, seed).parameters())
        return next((one.dtype for one in parameters if one.is_floating_point()), torch.float32)

    def _problem(self, examples: Examples, likelihood: Likelihood, seed: int) -> Problem:
        x, _ = examples.first()
        shape = _shape(x)
        in_memory = isinstance(examples, TensorExamples)
        if self.network is None and (not in_memory or len(shape) != 1):
            what, cure = type(x).__name__, "give a network, bf.Auto(net, likelihood)"
            if isinstance(x, Tensor):
                what = f"shape {[examples.n_data, *shape]}" if in_memory else f"batches of shape {list(x.shape)}"
                cure = "one column is x[:, None]" if in_memory and x.dim() == 1 else cure
            raise ValueError(
                f"Auto makes networks for tables (x, y) in memory, with x of shape [rows, columns], got {what}: {cure}"
            )
        weights, can_sample = None, can_be_sampled(likelihood)
        if self.network is not None:
            module = as_module(self.network, seed)
            weights = sum(part.numel() for part in module.parameters() if part.requires_grad)
            can_sample = can_sample and self._can_sample(x, seed)
        if isinstance(examples, TensorExamples) and one_noise_for_all(self.likelihood, examples.y):
            can_sample = False
        return Problem(
            self._kind(),
            rows=examples.n_data,
            inputs=sum(leaf[0].numel() for leaf in pytree.tree_leaves(x)),
            outputs=self._outputs(likelihood, examples) if in_memory else 1,
            images=len(shape) > 1,
            weights=weights,
            can_sample=can_sample,
            in_memory=in_memory,
            time=self.time,
        )

    def _warn_of_missing_classes(self, examples: Examples, likelihood: Likelihood) -> None:
        """Warn where the network that is made would have outputs for classes without an example."""
        if self.network is not None or not isinstance(likelihood, Labels) or likelihood.classes is not None:
            return
        assert isinstance(examples, TensorExamples)
        if not examples.y.is_floating_point():
            present = set(examples.y.unique().tolist())
            classes = likelihood.width(examples.y) // likelihood.parameters_per_class
            absent = [label for label in range(classes) if label not in present]
            told = classes_missing(absent, classes)
            if told is not None:
                warn(told)

    def _can_sample(self, x: Any, seed: int) -> bool:
        """Whether the network is a fixed function of its weights."""
        try:
            method = HMC(
                self.network,  # type: ignore[arg-type]  # it is one
                likelihoods.Categorical(),
                chains=1,
                bayesian=self.bayesian,
                output=self.output,
                seed=seed,
            )
            check_network(method.network, x)
        except (ValueError, MemoryError):
            return False
        return True

    @staticmethod
    def _outputs(likelihood: Likelihood, examples: Examples) -> int:
        assert isinstance(examples, TensorExamples)
        return likelihood.width(examples.y)

    def _planned(
        self,
        examples: Examples,
        settings: dict[str, Any],
        seed: int,
        validation: Any,
        device: torch.device | str | None,
        began: float,
    ) -> tuple[Method, dict[str, Any], tuple[Any, Any]]:
        """The untrained method, the arguments of its `fit`, and its training and validation data."""
        choice = self.choice
        assert choice is not None
        card = CARDS[choice.method]
        weights = 0 if self.network is None else networks.count_weights(as_module(self.network, seed))
        open_settings = card.settings_for(self._kind(), images=not is_table(examples, weights))
        if needs_whole_draws(settings):
            open_settings.pop("estimator", None)
        if settings.get("family") == "full_rank" and not {"learning_rate", "optimizer"} & set(settings):
            # Small posteriors have natural gradients, with a rate of their own: `fit` knows which are small.
            open_settings = {
                name: value for name, value in open_settings.items() if name not in {"learning_rate", "schedule"}
            }
        everything = {name: value for name, value in open_settings.items() if value is not None}
        everything |= {**choice.settings, **settings}
        of_method = {"bayesian", *card.options} - set(card.of_fit)
        plan = {name: value for name, value in everything.items() if name not in of_method}
        options = {name: value for name, value in everything.items() if name in of_method}
        make = self._maker(choice, examples, seed, options)
        if not card.optimised:
            method = make()
            if self.time is not None and not {"warm_up", "samples", "max_leapfrogs"} & set(settings):
                assert isinstance(examples, TensorExamples)
                assert isinstance(method, HMC)
                if device is not None:
                    method.to(device)
                left = self.time - (clock.perf_counter() - began)
                plan |= sampling_within(method, examples.to(method.position.device), left)
                plan["compiled"] = False
            return method, plan, (examples, validation)
        parts = examples, validation
        if choice.holdout and validation is None and isinstance(examples, TensorExamples):
            parts = _set_aside(examples, choice.holdout, seed)
        if parts[1] is None:
            plan = {name: value for name, value in plan.items() if name not in {"patience", "keep"}}
        plan |= {name: value for name, value in settings.items() if name not in of_method}
        batch_size = int(plan.get("batch_size", 128))
        plan.setdefault("epochs", enough_epochs(parts[0].n_data, batch_size))
        members = int(options.get("members", 1))
        if self.time is not None and "epochs" not in settings:
            left = self.time - (clock.perf_counter() - began)
            rest = {name: value for name, value in plan.items() if name != "epochs"}
            within = training_within(make, parts[0], rest, left, members, plan["epochs"], device)
            members, plan["epochs"] = within["members"], within["epochs"]
        return make(members=members), plan, parts

    def _maker(self, choice: Choice, examples: Examples, seed: int, options: dict[str, Any]) -> Callable[..., Method]:
        """A function that makes the untrained method, with as many members as it is given."""
        card = CARDS[choice.method]
        y = examples.y if isinstance(examples, TensorExamples) else (examples.sample(1000) or examples.first())[1]
        likelihood = settled_likelihood(self.likelihood, choice, y, self._network_outputs(examples, seed))
        network, prior = self.network, self.prior
        if network is None:
            assert isinstance(examples, TensorExamples)
            network = network_for(examples.x, likelihood.width(y), choice.network)
            if prior is None and choice.prior is not None:
                prior = named_prior(choice.prior, _FIRST_LAYER, len(choice.network["units"]))
        if self.bayesian != "all":
            options["bayesian"] = self.bayesian

        def make(members: int = 1) -> Method:
            if "members" in card.options:
                options["members"] = members
            return METHODS[choice.method](network, likelihood, prior=prior, output=self.output, seed=seed, **options)

        return make

    def _network_outputs(self, examples: Examples, seed: int) -> int | None:
        """The outputs of the user's network, where they are one axis."""
        if self.network is None:
            return None
        x, _ = examples.first()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                result = as_module(self.network, seed)(x)
            except Exception:  # noqa: BLE001 -- `fit` reports it in full, with the shapes of the data
                return None
        return result.shape[1] if isinstance(result, Tensor) and result.dim() == 2 else None

    def _tell(self, progress: bool) -> None:
        logger.info(self.reason)
        if progress:
            print(self.reason, file=sys.stderr)


def _shape(x: Any) -> tuple[int, ...]:
    """The shape of one input; empty where it has several parts."""
    return tuple(x.shape[1:]) if isinstance(x, Tensor) else ()


def _set_aside(examples: TensorExamples, share: float, seed: int) -> tuple[TensorExamples, TensorExamples | None]:
    """Training and validation examples, at random; no validation where there would be too few."""
    count = round(share * examples.n_data)
    if count < _FEWEST_HELD_OUT:
        return examples, None
    order = noise.permutation(noise.keys(seed, noise.Stream.SHUFFLE, 1 << 20), examples.n_data)[0]
    held, kept = order[:count].sort().values, order[count:].sort().values
    parts = [TensorExamples(*examples.fetch(rows), examples.columns) for rows in (kept, held)]
    return parts[0], parts[1]
