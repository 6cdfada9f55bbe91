"""Chains and their draws, as a method: what is held, how it answers, and how much memory it may ask for.

Draws of all chains are kept together, in the order in which they were made (`sampling/store.py`), and answered with in
a fair order. Weights of a network can be permuted, so chains sit in different copies of the same modes: a mean over
draws is taken of predictions, never of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesify.errors import at_least
from bayesify.functional import initialisation
from bayesify.likelihoods import Likelihood
from bayesify.methods.hmc.adaptation import Adaptation
from bayesify.methods.hmc.plan import Sampling
from bayesify.methods.hmc.store import DrawStore
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.methods.storage import check_room, shuffled
from bayesify.priors import Normal, WeightPrior
from bayesify.training.examples import Batch


class Chains(Method):
    """Positions of several chains and the draws that they have left; how they move is a subclass's idea.

    Args:
        chains: how many.
        prior: proper; standard normal by default.
        start: where the weights that are not random (`bayesian=`) are held: `given` or `fresh`.
        stored: room for this many draws of each chain.
        judged: the shape of the inputs on which convergence is judged.

    """

    plan_type: ClassVar[type[Any]] = Sampling
    prior_kind: ClassVar[str] = "proper"
    hyperpriors: ClassVar[bool] = True
    estimator: ClassVar[str] = "weight"
    plan: Any

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        chains: int = 4,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
        stored: int = 0,
        judged: Sequence[int] = (),
    ) -> None:
        at_least("chains", chains, 1)
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        assert isinstance(self.prior, WeightPrior)
        if self.likelihood.noisy:
            raise ValueError(
                f"{self.name} needs a likelihood without noise of its own, got {self.likelihood}: use categorical"
            )
        if any(True for _ in self.likelihood.parameters()):
            raise ValueError(
                f"{self.name} samples the weights alone, {self.likelihood} has a parameter of its own: give the noise "
                "as a number, or noise='heteroscedastic'"
            )
        self.chains = chains
        self._check_room(at_least("stored", stored, 0))
        size = self.network.random_size
        held = initialisation.start_weights(self.network, start, seed)
        self.rest: Tensor
        self.register_buffer("rest", held[size:].clone())
        # Until `fit` draws the starts, all chains are at the given weights (and the scales at their own start).
        begin = torch.cat((held[:size], self.prior.initial_log_scales().to(held)))
        self.position = nn.Parameter(begin.expand(chains, -1).clone())
        self.inputs: Tensor
        self.register_buffer("inputs", held.new_zeros(tuple(judged) or (0,)))
        self.learned: Tensor
        self.register_buffer("learned", torch.zeros(2, dtype=torch.float64))
        self.store = DrawStore(chains, self.position, size, stored)

    def settings(self) -> dict[str, Any]:
        return {"chains": self.chains, "stored": self.store.room, "judged": list(self.inputs.shape)}

    def facts(self) -> dict[str, str]:
        """What a summary says about the whole."""
        found = {"chains": f"{self.chains}, {self.store.drawn:,} draws of each kept"}
        if isinstance(self.plan, Sampling):
            found["warm-up"] = f"{self.plan.warm_up} iterations"
            found["sampling path"] = "compiled" if self.plan.compiled else "plain"
        if self.store.drawn:
            found["step size"] = f"{self.step_size:.4g}, trajectory length {float(self.learned[1]):.4g}"
            found["divergences"] = f"{self.store.divergences}"
        return found

    # What is held.

    @property
    def step_size(self) -> float:
        """What warm-up settled on."""
        return float(self.learned[0])

    @property
    def held(self) -> int | None:
        return self.chains * max(1, self.store.drawn)

    @property
    def draws_by_chain(self) -> Tensor:
        """The random weights of every draw, `[chains, draws, R]`."""
        return self.store.by_chain(self.store.draws)

    @property
    def scales_by_chain(self) -> Tensor | None:
        """The random scales of every draw, `[chains, draws, H]`; None where none is random."""
        return self.store.by_chain(self.store.log_scales).exp() if self.store.log_scales.shape[1] else None

    def predictions_by_chain(self, x: Any = None, *, every_class: bool = False) -> Tensor:
        """Class probabilities or means at x of every draw, `[chains, draws, inputs, ...]`.

        Of two classes only one is given unless `every_class`: the other one says the same.
        """
        if x is None and not self.inputs.numel():
            raise ValueError("there are no inputs to judge convergence on: give x=")
        if not self.store.drawn:
            raise ValueError("there are no draws yet: call fit first")
        order = shuffled(self.held or 1, range(self.held or 1), 0, torch.device("cpu"))
        numbers = torch.argsort(order).tolist()
        outputs = self._outputs(self.inputs if x is None else x, numbers, 0, "draws", 1000)
        likelihood: Any = self.likelihood
        values: Tensor
        if likelihood.kind == "classification":
            values = likelihood.probs(outputs)
            values = values[..., 1:] if values.shape[-1] == 2 and not every_class else values
        else:
            values = likelihood.mean(outputs)
        ordered: Tensor = values.unflatten(0, (-1, self.chains)).transpose(0, 1)
        return ordered

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        if not self.store.drawn:
            return self._current()[list(draws)]
        # On the CPU, so that the order is the same wherever the draws are.
        rows = shuffled(self.held or 1, draws, seed, torch.device("cpu")).to(self.store.draws.device)
        return torch.cat((self.store.draws[rows], self.rest.expand(len(rows), -1)), 1)

    @property
    def mean_weights(self) -> Tensor:
        raise ValueError('chains sit in different copies of a mode, whose mean is in none: use by="draws"')

    # What a run writes.

    def settle(self, adaptation: Adaptation) -> None:
        """Remember what warm-up learned."""
        self.learned.copy_(torch.tensor([adaptation.step.average, adaptation.length.length], dtype=torch.float64))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back the tensors of a checkpoint, which may hold fewer draws than there is room for."""
        self.inputs = torch.zeros_like(tensors["inputs"]).to(self.position)
        self.load_state_dict(tensors)

    # The contract's other parts: the objective of a loop of one's own, at the chains' positions.

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        ((x, y),) = batches
        nll = self._nll(self.network.outputs(self._current(grad=True), x)[0], y, step)
        penalty = self._penalty(step, draws)
        return Objective(nll + share / y.shape[0] * penalty, nll, penalty)

    def _penalty(self, step: int, draws: int) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size
        if self.prior.n_random_scales:
            return -self.prior.log_density_raw(self.position[:, :size], self.position[:, size:]).mean()
        return -self.prior.log_density(self.position).mean()

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The pass of one chain, the step's turn."""
        chain = step % self.chains
        return self.network.outputs(self._current(grad=True)[chain : chain + 1], x)

    # What the above is made of.

    def _check_room(self, draws: int) -> None:
        """Refuse chains, or draws of them, that memory does not hold."""
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size + self.prior.n_random_scales
        advice = "lower chains= or samples=, raise thin=, or use variational, which holds no draws"
        # The chains' own positions are there before anything is drawn.
        check_room(self.name, self.chains * max(draws, 1), size, self.network.dtype, advice)

    def _current(self, *, grad: bool = False) -> Tensor:
        """The weights at the chains' positions, `[chains, P]`."""
        assert isinstance(self.prior, WeightPrior)
        position = self.position if grad else self.position.detach()
        size = self.network.random_size
        random = position[:, :size]
        if self.prior.n_random_scales:
            random = self.prior.centred(random, position[:, size:])
        return torch.cat((random, self.rest.expand(self.chains, -1)), 1)
