"""torch's common optimisers without the import of torch's compiler, which takes longer than a small fit.

torch marks some functions of its optimisers, so that `torch.compile` does not look into them. The first call of a
marked function imports the compiler, whether anything is compiled or not. These classes call the functions themselves.
The numbers, the state and the options are torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class LightOptimizer(Optimizer):
    """A base for optimisers, in the place of torch's."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


def _light(kind: type[Optimizer]) -> Any:
    own_step = inspect.unwrap(kind.step)

    def step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return own_step(self, closure)

    return type(kind.__name__, (LightOptimizer, kind), {"step": step, "__doc__": kind.__doc__, "__module__": __name__})


SGD, Adam, AdamW = _light(torch.optim.SGD), _light(torch.optim.Adam), _light(torch.optim.AdamW)
