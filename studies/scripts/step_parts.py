"""Processor time of the parts of a compiled variational step on one core.

    OMP_NUM_THREADS=1 python studies/scripts/step_parts.py

Each part is compiled alone, for the weights of study B's network: noise, a draw from given noise, the update of means
and widths, and the update of a plain step. `written out` has the exponential, or the logarithm, as a polynomial in the
place of a call of the math library. The least of 80 rounds counts, in processor time, so that other processes on the
same cores change little.
"""

import time

import torch
from torch import Tensor
from torch.nn import functional as F

from bayesify import noise
from bayesify.training.engines import compiling

WEIGHTS, ROUNDS, CALLS = 478_410, 80, 10
LOG_2 = (0.693359375, -2.12194440e-4)
# e^r for |r| <= log(2) / 2, and log(1 + r) / r for 1 + r from sqrt(1/2) to sqrt(2), by powers of r.
EXP = (1.0000000006, 1.00000003634, 0.499999914421, 0.166664198566, 0.0416683647926, 0.00837485390086, 0.00138293018021)
LOG = (1.0, -0.5, 0.3333333, -0.25, 0.2, -0.1666, 0.1428, -0.125, 0.111, -0.07)


def written_exp(x: Tensor) -> Tensor:
    """e^-|x|, at least e^-60."""
    a = -x.abs().clamp(max=60.0)
    n = torch.round(a * 1.4426950408889634)
    return noise.polynomial(EXP, a - n * LOG_2[0] - n * LOG_2[1]) * ((n.to(torch.int32) + 127) << 23).view(x.dtype)


def written_log(x: Tensor) -> Tensor:
    """A logarithm with the operations of one, not with its last digits."""
    bits = x.view(torch.int32)
    power = (bits - 0x3F3504F3) >> 23
    rest = (bits - (power << 23)).view(torch.float32) - 1.0
    return power.float() * 0.6931471805599453 + rest * noise.polynomial(LOG, rest)


def draw(eps: Tensor, mean: Tensor, rho: Tensor, out: Tensor) -> None:
    out.copy_(mean + F.softplus(rho).clamp(min=1e-30) * eps)


def adam(parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> None:
    first.copy_(0.9 * first + 0.1 * gradient)
    second.copy_(0.999 * second + 0.001 * gradient * gradient)
    parameter.copy_(parameter - 1e-3 * first / (torch.sqrt(second) * 1.1 + 1e-8))


def update(mean: Tensor, rho: Tensor, eps: Tensor, gradient: Tensor, *moments: Tensor) -> None:
    """Of means and widths, with the gradient of the KL from a normal prior."""
    own = rho.detach().requires_grad_()
    width = F.softplus(own)
    (slope,) = torch.autograd.grad(width, own, torch.ones_like(width))
    width = width.detach()
    adam(mean, gradient + 1e-5 * mean, *moments[:2])
    adam(rho, (gradient * eps + 1e-5 * (width - 1 / width)) * slope, *moments[2:])


def main() -> None:
    torch.manual_seed(0)
    keys = noise.keys(0, noise.Stream.TRAINING)
    mean, rho, eps = (torch.randn(WEIGHTS) * scale + start for scale, start in ((0.05, 0.0), (1.0, -5.0), (1.0, 0.0)))
    gradient, out, zeros = eps * 1e-3, torch.empty(WEIGHTS), [torch.zeros(WEIGHTS) for _ in range(4)]

    def fill(keys: Tensor, out: Tensor) -> None:
        out.copy_(noise.normal(keys, WEIGHTS)[0])

    def compiled(function, *tensors):
        run = compiling.compile_function(function, tensors)
        return lambda: run(*tensors)

    parts = {"update, plain": compiled(adam, mean.clone(), gradient, *zeros[:2])}
    own_exp, own_log = compiling._exp_minus_abs, torch.log
    for name in ("", ", written out"):
        if name:
            compiling._exp_minus_abs, torch.log = written_exp, written_log
        parts[f"noise{name}"] = compiled(fill, keys, out)
        parts[f"draw from noise{name}"] = compiled(draw, eps, mean, rho, out)
        parts[f"update, variational{name}"] = compiled(update, mean.clone(), rho.clone(), eps, gradient, *zeros)
    compiling._exp_minus_abs, torch.log = own_exp, own_log
    least = dict.fromkeys(parts, float("inf"))
    for _ in range(ROUNDS):
        for name, run in parts.items():
            began = time.thread_time()
            for _ in range(CALLS):
                run()
            least[name] = min(least[name], (time.thread_time() - began) / CALLS)
    for name, seconds in least.items():
        print(f"{name:36s} {1000 * seconds:.3f} ms")


if __name__ == "__main__":
    main()
