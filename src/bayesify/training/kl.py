"""How an epoch's KL is shared among its batches.

For a batch of B_i of N examples the loss is `mean negative log-likelihood + pi_i * KL / B_i`, with `pi_i` summing to
one over an epoch: `B_i / N` (uniform), or `2^(M - i) / (2^M - 1)` for batch i = 1 ... M (re-weighted; Blundell et al.
2015). A warm-up multiplies it by a factor that grows to one over the first epochs, a temperature by a constant: with
either, the objective is not the ELBO, and `summary()` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesify.errors import choose, positive

WEIGHTINGS = ("uniform", "reweighted")


@dataclass(frozen=True)
class KL:
    """The weighting, the length of the warm-up in epochs, and the temperature.

    Its text form is `uniform`, `reweighted`, or either with options: `uniform,warm-up=5,temperature=0.5`.
    """

    weighting: str = "uniform"
    warm_up: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        choose("KL weighting", self.weighting, WEIGHTINGS)
        positive("temperature", self.temperature)
        if not 0 <= self.warm_up < float("inf"):
            raise ValueError(f"warm_up must be a number of epochs from 0, got {self.warm_up!r}")

    @staticmethod
    def parse(given: str | KL) -> KL:
        """Read the text form."""
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
        """pi_i of batch number `batch`, counted from zero."""
        if self.weighting == "uniform":
            return batch_size / n_data
        # 2^(M-i) / (2^M - 1) with i = batch + 1, written so that 2^M never overflows.
        return 2.0 ** -(batch + 1) / (1.0 - 2.0**-batches)

    def factor(self, epoch: float) -> float:
        """What multiplies the KL besides its share, at a time counted in epochs."""
        warm = min(1.0, epoch / self.warm_up) if self.warm_up else 1.0
        return warm * self.temperature

    @property
    def exact(self) -> bool:
        return self.temperature == 1 and not self.warm_up
