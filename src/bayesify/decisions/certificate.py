"""A certificate: what is guaranteed, for which inputs, from how many examples, and with which digests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bayesify.decisions.provenance import Provenance


@dataclass(frozen=True)
class Certificate:
    """One guarantee in words, with what it was made from.

    Args:
        kind: `refusal` or `conformal`.
        promise: what is guaranteed.
        found: what was seen on the calibration examples.
        provenance: number of examples, digests of data, weights and configuration, draws, seed, and the inputs that it
            is guaranteed for.

    """

    kind: str
    promise: str
    found: str
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain JSON."""
        about = {"kind": self.kind, "promise": self.promise, "found": self.found}
        return about | self.provenance.to_dict()

    def __str__(self) -> str:
        origin = self.provenance
        digests = (origin.data[:19], origin.weights[:19], origin.config[:19])
        lines = [
            self.promise,
            f"  for: {origin.population}, predicted with {origin.draws} draws and seed {origin.seed}",
            f"  found: {self.found}",
            "  from: {} examples, data {}, weights {}, configuration {}".format(origin.examples, *digests),
        ]
        return "\n".join(lines)
