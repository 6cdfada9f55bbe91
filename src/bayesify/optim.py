"""IVON as an optimiser, for people who keep their network and their training loop and change one line.

    optimizer = bf.optim.IVON(network.parameters(), n_data=len(data))
    for x, y in loader:
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
        optimizer.step()

The loss is the mean negative log-likelihood of the batch, without a penalty: the update contains the prior. The
formulas are those of `bf.IVON` (`methods/ivon/ivon.py`), which has predictions, checkpoints and reports besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.errors import at_least, positive, whole_number
from bayesify.methods.ivon.update import hessian_rate, ivon_update
from bayesify.training.light_optimizers import LightOptimizer

__all__ = ["IVON"]


class IVON(LightOptimizer):
    """Variational inference in the place of Adam: the weights become means of a Gaussian posterior (Shen et al. 2024).

        q(w) = N(m, sigma^2), sigma^2 = 1 / (n (h + delta)), delta = 1 / (n s^2), n = n_data / temperature

    With the gradient g of the mean negative log-likelihood at drawn weights m + sigma eps, and c = g eps / sigma:

        v <- beta1 v + (1 - beta1) g,    h <- beta2 h + (1 - beta2) c + correction
        m <- m - lr * (v / (1 - beta1^t) + delta m) / (h + delta)

    Several passes through `sampled_params(train=True)` before one `step` are averaged: several draws, or the parts of a
    batch in gradient accumulation. Gradients can be clipped between the context and `step`.

    Args:
        params: parameters, or groups of them, as for any torch optimiser. Frozen parameters stay out.
        n_data: the number of examples in the whole training set.
        lr: the share of a Newton step: 0.1 to 0.3 with a falling schedule, less with a constant one.
        prior_scale: s, the standard deviation of the prior, which has mean zero.
        hessian_init: where the Hessian estimate h starts.
        beta1: the decay of the running mean of gradients.
        beta2: the decay of the running mean of Hessian estimates in the long run; early steps average over less.
        batch_size: examples per step, which decide how fast the Hessian estimate may follow its noise.
        temperature: below 1 the posterior is narrower than Bayes' rule gives.
        seed: of the noise.

    Raises:
        TypeError: `params` is a network.
        ValueError: a setting is out of range.

    References:
        Y. Shen et al., "Variational Learning is Effective for Large Deep Networks", 2024, arXiv:2402.17641.

    Examples:
        >>> network = bf.networks.mlp(2, 3, units=8)
        >>> optimizer = bf.optim.IVON(network.parameters(), n_data=len(x), batch_size=len(x), lr=0.2, hessian_init=0.1)
        >>> losses = []
        >>> for step in range(50):
        ...     with optimizer.sampled_params(train=True):
        ...         optimizer.zero_grad()
        ...         loss = torch.nn.functional.cross_entropy(network(x), y)
        ...         loss.backward()
        ...     optimizer.step()
        ...     losses.append(loss.item())
        >>> losses[-1] < 0.5 * losses[0]
        True
        >>> draws = []
        >>> for _ in range(20):
        ...     with optimizer.sampled_params(), torch.no_grad():
        ...         draws.append(network(x).softmax(-1))
        >>> torch.stack(draws).std(0).shape
        torch.Size([60, 3])

    """

    def __init__(
        self,
        params: Iterable[Any],
        n_data: int,
        lr: float = 0.1,
        *,
        prior_scale: float = 1.0,
        hessian_init: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.99999,
        batch_size: int = 128,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        if isinstance(params, nn.Module):
            raise TypeError(f"params must be parameters, got a {type(params).__name__}: pass network.parameters()")
        n_data = at_least("n_data", n_data, 1)
        batch_size = at_least("batch_size", batch_size, 1)
        seed = whole_number("seed", seed)
        for name, beta in (("beta1", beta1), ("beta2", beta2)):
            if not 0 <= beta < 1:
                raise ValueError(f"{name} must be a number from 0 and below 1, got {beta!r}")
        defaults = {
            "lr": positive("lr", lr),
            "prior_scale": positive("prior_scale", prior_scale),
            "hessian_init": positive("hessian_init", hessian_init),
            "beta1": float(beta1),
            "beta2": float(beta2),
        }
        super().__init__(params, defaults)
        self._data = n_data / positive("temperature", temperature)
        self._batches, self._seed = max(1, -(-n_data // batch_size)), seed
        self._inside, self._draws, self._predictions = False, 0, 0

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, such as layers that are trained from now on; frozen parameters stay out.

        Args:
            param_group: `params` and settings that differ from the defaults.

        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["params"] = [parameter for parameter in group["params"] if parameter.requires_grad]
        group.setdefault("steps", 0)
        for parameter in group["params"]:
            self.state[parameter] |= {
                "hessian": torch.full_like(parameter, group["hessian_init"], requires_grad=False),
                "momentum": torch.zeros_like(parameter, requires_grad=False),
            }

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        """Inside this context the parameters are a draw from the posterior; afterwards they are its means again.

        Args:
            train: call `backward` inside, and the gradients become part of the next `step`. Each pass has another draw.
                Without it the context is for predictions: each has the next draw of the prediction's noise.

        Examples:
            >>> network = torch.nn.Linear(2, 1)
            >>> optimizer = bf.optim.IVON(network.parameters(), n_data=100)
            >>> before = network.weight.detach().clone()
            >>> with optimizer.sampled_params():
            ...     moved = not torch.equal(network.weight, before)
            >>> moved, torch.equal(network.weight, before)
            (True, True)

        """
        if self._inside:
            raise RuntimeError("sampled_params is already active: leave it before entering it again")
        parameters = [(group, parameter) for group in self.param_groups for parameter in group["params"]]
        means = [parameter.detach().clone() for _, parameter in parameters]
        noises = self._perturb(parameters, train)
        self._inside = True
        if train:
            for _, parameter in parameters:
                parameter.grad = None
        try:
            yield
        finally:
            self._inside = False
            with torch.no_grad():
                for (_, parameter), mean in zip(parameters, means, strict=True):
                    parameter.copy_(mean)
        if train:
            self._collect(parameters, noises)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update means and Hessian estimates with the gradients of the passes since the last step.

        Args:
            closure: not used by IVON.

        Raises:
            RuntimeError: no pass through `sampled_params(train=True)` came before.

        """
        if closure is not None:
            raise ValueError("IVON takes no closure: run the passes inside sampled_params(train=True)")
        if self._inside:
            raise RuntimeError("step() belongs after sampled_params, not inside it")
        if self._draws == 0:
            raise RuntimeError("IVON has no gradients: call backward() inside sampled_params(train=True) first")
        for group in self.param_groups:
            delta, done = self._delta(group), group["steps"]
            for parameter in group["params"]:
                state = self.state[parameter]
                curvature = state.pop("curvature", None)
                gradient = state.pop("gradient", None)
                if gradient is None or curvature is None:
                    continue
                new = ivon_update(
                    parameter,
                    state["hessian"],
                    state["momentum"],
                    gradient / self._draws if parameter.grad is None else parameter.grad,
                    curvature / self._draws,
                    0.0,
                    delta,
                    rate=group["lr"],
                    beta1=group["beta1"],
                    hessian_rate=hessian_rate(done, self._batches, group["beta2"]),
                    debias=1 - group["beta1"] ** (done + 1),
                )
                for old, value in zip((parameter, state["hessian"], state["momentum"]), new, strict=True):
                    old.copy_(value)
            group["steps"] = done + 1
        self._draws = 0

    def std(self, parameter: Tensor) -> Tensor:
        """Posterior standard deviations of a parameter.

        Args:
            parameter: one of the optimiser's.

        Returns:
            A tensor of its shape.

        Examples:
            >>> network = torch.nn.Linear(2, 1)
            >>> optimizer = bf.optim.IVON(network.parameters(), n_data=100)
            >>> optimizer.std(network.bias)  # 1 / sqrt(100 * (1 + 1 / 100))
            tensor([0.0995])

        """
        group = next((group for group in self.param_groups if any(p is parameter for p in group["params"])), None)
        if group is None:
            raise ValueError("this parameter is not one of the optimiser's")
        precision = self._data * (self.state[parameter]["hessian"] + self._delta(group))
        # Where h is negative (a maximum, or noise) no width exceeds sqrt(2) times the prior's.
        return torch.rsqrt(precision.clamp(min=0.5 / group["prior_scale"] ** 2))

    def _delta(self, group: dict[str, Any]) -> Tensor:
        first = group["params"][0] if group["params"] else torch.zeros(())
        return torch.as_tensor(1 / (self._data * group["prior_scale"] ** 2), dtype=first.dtype, device=first.device)

    @torch.no_grad()
    def _perturb(self, parameters: list[tuple[dict[str, Any], Tensor]], train: bool) -> list[Tensor]:
        """Add noise to the parameters; all of them are elements of one vector of noise, as in `bf.IVON`."""
        if train:
            where = {"step": parameters[0][0]["steps"], "draws": (self._draws,)}
            stream = noise.Stream.TRAINING
        else:
            where = {"draws": (self._predictions,)}
            stream, self._predictions = noise.Stream.PREDICTION, self._predictions + 1
        start, noises = 0, []
        for _, parameter in parameters:
            key = noise.keys(self._seed, stream, device=parameter.device, **where)
            eps = noise.normal(key, parameter.numel(), start)[0].view(parameter.shape).to(parameter.dtype)
            start += parameter.numel()
            parameter.add_(self.std(parameter) * eps)
            noises.append(eps)
        return noises

    @torch.no_grad()
    def _collect(self, parameters: list[tuple[dict[str, Any], Tensor]], noises: list[Tensor]) -> None:
        if all(parameter.grad is None for _, parameter in parameters):
            raise RuntimeError("no parameter has a gradient: call backward() inside sampled_params(train=True)")
        self._draws += 1
        for (_, parameter), eps in zip(parameters, noises, strict=True):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            curvature = parameter.grad * eps / self.std(parameter)
            before = state.get("gradient"), state.get("curvature")
            state["gradient"] = parameter.grad.clone() if before[0] is None else before[0] + parameter.grad
            state["curvature"] = curvature if before[1] is None else before[1] + curvature
            # The mean over the passes, so that clipping before `step` sees what `step` uses.
            parameter.grad = state["gradient"] / self._draws
