"""How an epoch's KL is shared among its batches.

    loss of batch i = mean NLL + pi_i * factor * KL / B_i,        sum of pi_i over an epoch = 1

with B_i of N examples in batch i, and pi_i = B_i / N (uniform) or 2^(M - i) / (2^M - 1) for i = 1 ... M (reweighted:
Blundell, Cornebise, Kavukcuoglu and Wierstra, "Weight Uncertainty in Neural Networks", 2015, arXiv:1505.05424). A
warm-up lets the factor grow from zero to one over the first epochs, a temperature multiplies it by a constant. With
either, the objective is not the ELBO, and `summary()` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesify.errors import choose, positive, take_plain_numbers

WEIGHTINGS = ("uniform", "reweighted")


@dataclass(frozen=True)
class KL:
    """How the KL to the prior is weighted in the loss of each batch.

    The loss of batch i with B_i of N examples is `mean NLL + pi_i * factor * KL / B_i`. The shares `pi_i` sum to one
    over an epoch of M batches: `B_i / N` (uniform) or `2^(M - i) / (2^M - 1)` (reweighted: the first batches see most
    of the KL). `fit(kl=...)` takes a `KL` or its text form: `uniform`, `reweighted`, or either with options, as in
    `uniform,warm-up=5,temperature=0.5`.

    Args:
        weighting: `uniform` or `reweighted`.
        warm_up: epochs over which the factor grows linearly from zero to the temperature; 0 has no warm-up.
        temperature: a constant that multiplies the KL; below 1 the posterior is cold, narrower than Bayes' rule gives.

    Raises:
        ValueError: for an unknown weighting, a negative warm-up or a temperature that is not positive.

    Examples:
        >>> kl = bf.KL("reweighted", warm_up=5, temperature=0.5)
        >>> print(kl)
        reweighted,warm-up=5,temperature=0.5
        >>> [round(kl.share(batch, batches=3, batch_size=20, n_data=60), 3) for batch in range(3)]
        [0.571, 0.286, 0.143]
        >>> kl.factor(2.5), kl.exact
        (0.25, False)

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, "Weight Uncertainty in Neural Networks", 2015, arXiv:1505.05424.

    """

    weighting: str = "uniform"
    warm_up: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        take_plain_numbers(self)
        choose("KL weighting", self.weighting, WEIGHTINGS)
        positive("temperature", self.temperature)
        if not 0 <= self.warm_up < float("inf"):
            raise ValueError(f"warm_up must be a finite number of epochs, at least 0, got {self.warm_up!r}")

    @staticmethod
    def parse(given: str | KL) -> KL:
        """Read the text form.

        Args:
            given: text such as `uniform,warm-up=5`, or a `KL`, which is returned as it is.

        Returns:
            The weighting.

        Raises:
            ValueError: for an unknown weighting or option, or an option without a number.

        """
        if isinstance(given, KL):
            return given
        weighting, *options = str(given).split(",")
        values: dict[str, float] = {}
        for option in options:
            name, _, number = option.partition("=")
            choose("KL option", name.strip(), ("warm-up", "temperature"))
            try:
                values[name.strip().replace("-", "_")] = float(number)
            except ValueError:
                raise ValueError(f"KL option {name.strip()} needs a number, got {number!r}") from None
        return KL(weighting.strip(), **values)

    def __str__(self) -> str:
        text = self.weighting
        if self.warm_up:
            text += f",warm-up={self.warm_up!r}"
        if self.temperature != 1:
            text += f",temperature={self.temperature!r}"
        return text

    def share(self, batch: int, batches: int, batch_size: int, n_data: int) -> float:
        """The share pi_i of an epoch's KL that one batch takes.

        Args:
            batch: number of the batch in its epoch, counted from zero.
            batches: number of batches in an epoch.
            batch_size: number of examples in this batch.
            n_data: number of examples in the data set.

        Returns:
            A number that sums to one over the batches of an epoch.

        """
        if self.weighting == "uniform":
            return batch_size / n_data
        # 2^(M-i) / (2^M - 1) with i = batch + 1, written so that 2^M never overflows.
        return 2.0 ** -(batch + 1) / (1.0 - 2.0**-batches)

    def factor(self, epoch: float) -> float:
        """What multiplies the KL besides its share: warm-up times temperature.

        Args:
            epoch: epochs of training so far; part of an epoch counts.

        Returns:
            A number from zero to the temperature.

        """
        warm = min(1.0, epoch / self.warm_up) if self.warm_up else 1.0
        return warm * self.temperature

    @property
    def exact(self) -> bool:
        """Whether the objective is the ELBO: no warm-up, and a temperature of one."""
        return self.temperature == 1 and not self.warm_up
