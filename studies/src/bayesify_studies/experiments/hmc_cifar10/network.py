"""The network and the data that HMC was run on (Izmailov et al. 2021, arXiv:2104.14421), and HMC's answers.

A ResNet-20 with filter response normalisation instead of batch normalisation, swish, and biases; pixels in 0..1, less
(0.49, 0.48, 0.44), divided by 0.2; no augmentation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bayesify.data import DataError, load
from bayesify.data.locations import roots

MEAN, SCALE = (0.49, 0.48, 0.44), 0.2


class FilterResponseNorm(nn.Module):
    """x / sqrt(mean of x^2 over the image), with a learned scale and shift for each channel (Singh and Krishnan 2020).

    HMC samples its weights like all others.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images."""
        power = x.float().square().mean((-2, -1), keepdim=True)
        # In the precision of the input: in bfloat16 half as many bytes go to memory and back.
        return (self.scale * (x * torch.rsqrt(power + 1e-6)) + self.shift).to(x.dtype)


class Convolution(nn.Conv2d):
    """A convolution with weights `times * weight`.

    With a prior that is narrower by `times` it is the same model. A step of a sampler or of gradient descent moves its
    weights as if its learning rate were larger by `times^2`.

    Args:
        inputs: channels of the input.
        outputs: channels of the output.
        kernel: its size.
        stride: its stride.
        times: the factor.

    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, times: float) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2)
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        """The convolved images."""
        weight = self.weight if self.times == 1 else self.times * self.weight
        convolved: Tensor = self._conv_forward(x, weight, self.bias)
        return convolved


class Block(nn.Module):
    """Two convolutions and a shortcut, which is a 1 x 1 convolution where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, times: float) -> None:
        super().__init__()
        first, second = Convolution(inputs, outputs, 3, stride, times), Convolution(outputs, outputs, 3, 1, times)
        self.first = nn.Sequential(first, FilterResponseNorm(outputs), nn.SiLU())
        self.second = nn.Sequential(second, FilterResponseNorm(outputs))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else Convolution(inputs, outputs, 1, stride, times)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return nn.functional.silu(self.second(self.first(x)) + self.shortcut(x))


def resnet20(width: int = 16, times: float = 1.0) -> nn.Sequential:
    """Three stages of three blocks: 273,066 weights at width 16. `times` is the factor of all convolutions."""
    layers: list[nn.Module] = [Convolution(3, width, 3, 1, times), FilterResponseNorm(width), nn.SiLU()]
    inputs = width
    for stage in range(3):
        outputs = width * 2**stage
        for block in range(3):
            layers.append(Block(inputs, outputs, 2 if stage > 0 and block == 0 else 1, times))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def at_the_priors_norm(trained: nn.Module, network: nn.Module, scale: float) -> nn.Module:
    """`network` with the function of a trained one, and convolutions of the size that the prior gives them.

    A convolution before a normalisation computes the same at any norm, so the posterior of its norm is the prior's,
    which is narrow: `scale` times the root of the number of weights. A chain that starts there need not find it.

    Args:
        trained: a `resnet20` with times 1.
        network: one of the same width, of any `times`; its weights are replaced.
        scale: the prior's standard deviation.

    """
    found = dict(trained.named_modules())
    for name, module in network.named_modules():
        own = found[name]
        if isinstance(module, Convolution) and isinstance(own, Convolution):
            normalised = not name.endswith("shortcut")
            factor = scale / float(own.weight.detach().square().mean().sqrt()) if normalised else 1.0
            module.weight.data.copy_(own.weight.detach() * factor / module.times)
            if module.bias is not None and own.bias is not None:
                module.bias.data.copy_(own.bias.detach() * factor)
        else:
            for mine, theirs in zip(module.parameters(recurse=False), own.parameters(recurse=False), strict=True):
                mine.data.copy_(theirs.detach())
    return network


def prior_of(times: float, scale: float) -> dict[str, str]:
    """A normal prior by patterns of names: the weights that act have this standard deviation."""
    convolutions = ("0.weight", "*.first.0.weight", "*.second.0.weight", "*.shortcut.weight")
    return dict.fromkeys(convolutions, f"normal:{scale / times:.9g}") | {"*": f"normal:{scale:.9g}"}


def images(examples: int, tested: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first training images and their labels, and the first test images and theirs."""
    data = load("cifar10")
    location = torch.tensor(MEAN, device=device)[:, None, None]

    def scaled(x: Tensor) -> Tensor:
        return (x.to(device).float() / 255 - location) / SCALE

    return (
        scaled(data.x_train[:examples]),
        data.y_train[:examples].to(device),
        scaled(data.x_test[:tested]),
        data.y_test[:tested].to(device),
    )


def answers_of_hmc() -> Tensor:
    """Class probabilities of the test images, `[10000, 10]`, in the order of the test batch."""
    for root in roots():
        file = root / "hmc-cifar10" / "probs.npz"
        if file.is_file():
            with np.load(file, allow_pickle=False) as arrays:
                return torch.from_numpy(arrays["probs"])
    raise DataError("hmc-cifar10/probs.npz is not in $BAYESIFY_DATA: it has HMC's answers, and cannot be downloaded")


def labels(tested: int) -> Tensor:
    """The labels of the first test images."""
    return load("cifar10").y_test[:tested]
