"""Methods whose loss is an ELBO: how the ELBO of their posterior is estimated, and the KL of each layer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import at_least
from bayesify.methods.elbo import ELBO
from bayesify.methods.method import Method
from bayesify.priors import WeightPrior
from bayesify.training.batches import Batch, TensorExamples
from bayesify.training.users_data import as_examples

# Units times weights up to which units are judged one by one.
_MOST_WORK = 20_000_000


class WithELBO(Method):
    """A method whose loss is an ELBO: it can also estimate the ELBO of its posterior."""

    has_elbo: ClassVar[bool] = True

    def elbo(self, data: Any, draws: int = 100, seed: int = 0, examples: int | None = None) -> ELBO:
        """Estimate the ELBO of the posterior as it is now, on the data that it was trained on.

            ELBO = E_q[sum over all N examples of log p(y | x, w)] - KL(q || p)

        `history["elbo"]` has a noisier number for every epoch, from the draws of its steps and weights that still
        moved. The network runs in evaluation mode (without dropout, with its running statistics).

        Args:
            data: the training data, in any form that `fit` takes; loaders are read once.
            draws: posterior draws, at least 2.
            seed: of the draws.
            examples: use at most this many, evenly spread over data in memory, and scale their sum up to all N. None
                is all. The standard error includes what the choice adds.

        Returns:
            The ELBO, its standard error and its two parts.

        Raises:
            ValueError: `draws` is less than 2, or the data does not fit the network.

        Examples:
            >>> print(bnn.elbo((x, y), draws=50))
            -... nats, standard error ... (expected log-likelihood -..., KL ...)

        """
        draws = at_least("draws", draws, 2)
        data_set = as_examples(data, self.likelihood, self.network.dtype, columns=self.column_names)
        if examples is not None and isinstance(data_set, TensorExamples):
            chosen = data_set.sample(at_least("examples", examples, 2))
            assert chosen is not None
            return self.elbo_of([chosen], data_set.n_data, draws, seed)
        return self.elbo_of(data_set.in_order(self.inputs_at_once), data_set.n_data, draws, seed)

    @torch.no_grad()
    def elbo_of(self, batches: Iterable[Batch], n_data: int, draws: int, seed: int = 0) -> ELBO:
        """The same from batches of prepared examples, which may be a part of the data.

        Args:
            batches: pairs `(x, y)`.
            n_data: N, the number of examples in the whole training data.
            draws: posterior draws.
            seed: of the draws.

        Returns:
            The ELBO over N examples.

        """
        device = self.network.device
        total = torch.zeros(draws, dtype=torch.float64, device=device)
        by_example = []
        keys = noise.keys(seed, noise.Stream.LOGITS, draws=range(draws), device=device)
        likelihood = self.likelihood_of(range(draws), seed)
        for x, y in batches:
            log_prob = likelihood.log_prob(self.draw(x, draws, seed), y.to(device), keys).double()
            total += log_prob.sum(1)
            by_example.append(log_prob.mean(0))
        of_examples = torch.cat(by_example)
        rows = of_examples.shape[0]
        kls = self._kl_of_draws(range(draws), seed).double().to(device)
        scaled = total * (n_data / rows)
        variance = float((scaled - kls).var()) / draws
        if rows < n_data:
            variance += n_data**2 * float(of_examples.var()) / rows * (1 - rows / n_data)
        expected, kl = float(scaled.mean()), float(kls.mean())
        return ELBO(expected - kl, math.sqrt(variance), expected, kl, draws, rows, n_data)

    def kl_by_layer(self) -> dict[str, float]:
        """The KL of each layer from its marginal distributions, in nats per random weight, by the layer's name."""
        assert isinstance(self.prior, WeightPrior)
        mean, std, draws, kept, log_scales = self._marginals()
        owners = [(place.name.rpartition(".")[0], place) for place in self.network.places if place.random]
        by_layer = {}
        with torch.no_grad():
            for layer in dict.fromkeys(owner for owner, _ in owners):
                mask = torch.zeros(mean.shape[0], dtype=torch.bool, device=mean.device)
                for owner, place in owners:
                    mask[place.start : place.stop] |= owner == layer
                mask = mask if kept is None else mask & kept
                if mask.any():
                    by_layer[layer] = float(self.prior.kl(mean, std, draws, mask, log_scales) / mask.sum())
        return by_layer

    def units_at_the_prior(self, nats: float) -> dict[str, list[int]]:
        """How many units of each layer are at the prior: their incoming weights have hardly any KL.

        Only for small networks: the KL is computed once for each unit.

        Args:
            nats: the KL per weight below which a unit is at the prior.

        Returns:
            By layer, the number of such units and of all its units; layers without any are left out.

        """
        assert isinstance(self.prior, WeightPrior)
        matrices = [place for place in self.network.places if place.random and len(place.shape) > 1]
        if sum(place.shape[0] for place in matrices) * self.network.random_size > _MOST_WORK:
            return {}
        mean, std, draws, kept, log_scales = self._marginals()
        found = {}
        for place in matrices:
            at_prior, size = 0, (place.stop - place.start) // place.shape[0]
            for first in range(place.start, place.stop, size):
                mask = torch.zeros(mean.shape[0], dtype=torch.bool, device=mean.device)
                mask[first : first + size] = True
                mask = mask if kept is None else mask & kept
                with torch.no_grad():
                    at_prior += float(self.prior.kl(mean, std, draws, mask, log_scales)) < nats * size
            if at_prior:
                found[place.name.rpartition(".")[0]] = [at_prior, int(place.shape[0])]
        return found

    @abstractmethod
    def start_std(self) -> Tensor:
        """Where the posterior's standard deviations started, `[R]`."""

    @abstractmethod
    def _kl_of_draws(self, draws: Sequence[int], seed: int) -> Tensor:
        """The KL as each draw estimates it, `[draws]`; the same number for all where it has a closed form."""

    @abstractmethod
    def _marginals(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Means and standard deviations `[R]`, draws, the mask of kept weights and log scales, as `prior.kl` takes."""
