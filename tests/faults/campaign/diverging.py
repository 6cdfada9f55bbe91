"""A gradient that is NaN at one step, with `on_nan="rollback"`: training goes back to the last good epoch, at half the rate.

The weights must be those of a training whose rate is halved from that epoch on, bit for bit. SWAG plans its rates
itself: there the rate must be half and the predictions finite.
"""

import logging
import math
import sys
import time
import warnings

from rows import Row

EPOCHS, STEPS, RATE = 6, 3, 2e-2  # 3 steps an epoch
SETTINGS = {
    "ensemble": {"members": 3},
    "mc-dropout": {"p": 0.2},
    "ivon": {"hessian_init": 0.1},
    "sgld": {"chains": 2},
    "sghmc": {"chains": 2},
}


def rows(ledger, short):
    """One row: each method that is trained in steps, with the fault at each step."""
    from bayesify.methods import METHODS
    from bayesify.training.plan import Plan

    began, tried, lost = time.monotonic(), 0, 0
    logging.getLogger("bayesify").setLevel(logging.ERROR)
    methods = sorted(name for name, kind in METHODS.items() if kind.plan_type is Plan)
    for name in methods:
        for step in range(0, EPOCHS * STEPS, 8 if short else 1):
            facts = ledger.trial(f"{name} {step}", lambda name=name, step=step: _trial(name, step))
            if facts is None:
                continue
            tried, lost = tried + 1, lost + bool(facts["why"])
            if facts["why"]:
                print(f"{name}, step {step}: {facts['why']}", file=sys.stderr)
    if tried:
        note = f"{len(methods)} methods; weights of a training at half the rate from that epoch on, bit for bit"
        yield Row("NaN at a step", "--on-nan rollback", tried, tried - lost, lost, time.monotonic() - began, note)


def _trial(name, step):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"why": _why(name, step)}


def _why(name, step):
    """What is wrong after a fault at this step; empty where nothing is."""
    import torch

    torch.set_num_threads(1)
    data = _data()
    method = _method(name)
    _bad_at(method, step)
    try:
        history = method.fit(data, **_fit(), on_nan="rollback")
        if history["epoch"] != [*range(1, EPOCHS + 1)]:
            return f"epochs {history['epoch']}"
        if name == "swag":
            finite = torch.isfinite(method.predict(data[0], draws=5).outputs).all()
            return "" if finite and history["learning_rate"][-1] == RATE / 2 else "not finite, or another rate"
        good = step // STEPS / EPOCHS
        expected = _method(name)
        expected.fit(data, **_fit(), schedule=lambda done: 1.0 if done < good else 0.5)
    except Exception as error:  # noqa: BLE001 -- counted as a loss
        return f"{type(error).__name__}: {error!s:.200}"
    theirs = expected.state_dict()
    return "" if all(torch.equal(one, theirs[key]) for key, one in method.state_dict().items()) else "other weights"


def _fit():
    return {"epochs": EPOCHS, "batch_size": 32, "learning_rate": RATE, "progress": False}


def _data():
    import torch

    noise = torch.Generator().manual_seed(0)
    y = torch.arange(32 * STEPS) % 3
    return torch.randn(len(y), 2, generator=noise) + torch.stack([y, -y], 1), y


def _method(name):
    import torch

    import bayesify as bf
    from bayesify.methods import METHODS

    torch.manual_seed(1)
    prior = {} if name in {"point", "ensemble", "mc-dropout", "swag"} else {"prior": "normal:1"}
    return METHODS[name](bf.networks.mlp(2, 3, units=16), "categorical", **prior, **SETTINGS.get(name, {}))


def _bad_at(method, bad):
    """Make the gradient NaN at this step, the first time that it is made."""
    original, left = method.backward, {bad}

    def backward(*args, step, **kwargs):
        objective = original(*args, step=step, **kwargs)
        if step in left:
            left.discard(step)
            for parameter in method.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(math.nan)
        return objective

    method.backward = backward
