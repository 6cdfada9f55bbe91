"""What a fit says of itself where HMC would be affordable: that it is an approximation, and how far its kind was off.

Predictions may be good and still differ from those of the posterior, which no check of predictions can see. Where the
posterior itself can be sampled in the usual time, `summary()` therefore says so and names HMC.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from bayesify.methods.auto_table import USUAL_TIME, sampling_seconds

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting

# Mean total variation from HMC's predictions on moons and on circles (docs/results/defaults.md). Methods that are not
# named are samplers of the posterior, or were not measured.
MEASURED: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "point": (0.07, 0.09),
        "ensemble": (0.06, 0.08),
        "mc-dropout": (0.06, 0.13),
        "variational": (0.09, 0.18),
        "ivon": (0.10, 0.21),
        "laplace": (0.04, 0.07),
        "swag": (0.07, 0.09),
        "sgld": (0.02, 0.04),
    }
)
# A family that anneals to the posterior was within 0.02 of HMC.
_EXACT_FAMILIES = frozenset({"annealed"})


def approximation(method: Fitting, n_data: int) -> str | None:
    """The note about a method that only approximates a posterior that HMC could sample; None for others.

    Args:
        method: a fitted method.
        n_data: the number of training examples.

    Returns:
        One sentence, or None.

    """
    measured = MEASURED.get(method.name)
    if measured is None or getattr(method, "family", None) in _EXACT_FAMILIES:
        return None
    seconds = sampling_seconds(n_data, method.network.size)
    if seconds > USUAL_TIME:
        return None
    low, high = measured
    return (
        f"an approximation of the posterior, which HMC would sample in about {max(1.0, seconds):.0f} s here (bf.HMC or "
        f"bf.Auto): on two small problems its probabilities were {low:.2f} and {high:.2f} from HMC's on average"
    )
