"""How far moments are from 10,000 draws, layer by layer and for whole networks: `python studies/scripts/moments.py`.

Three networks are trained by variational inference (digits by a perceptron and by a convolutional network, and a line
with a gap), three seeds each, then asked by draws and by moments. The table of means over seeds is printed and written
to docs/results/moments.json, with what bfloat16 changes in the perceptron's answers and the time that predicting 10,000
images by 784-400-400-10 takes in units of a plain pass. About a minute on one core.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify import networks
from bayesify.functional import layer_chain
from bayesify.methods.variational.estimators.moments import Gaussians, Propagation, stand_ins

DRAWS, CHUNK = 10_000, 250
PIXELS = 784


def perceptron(seed: int) -> tuple[bf.Variational, Tensor]:
    digits, part = bf.data.load("digits"), slice(25 * seed, 25 * seed + 25)
    bnn = bf.Variational(networks.mlp(64, 10, units=100), "categorical", prior="normal:0.3", estimator="local")
    bnn.fit((digits.x_train.flatten(1) / 16, digits.y_train), epochs=40, learning_rate=3e-3, progress=False)
    return bnn, digits.x_test[part].flatten(1) / 16


def convolutions(seed: int) -> tuple[bf.Variational, Tensor]:
    digits, part = bf.data.load("digits"), slice(8 * seed, 8 * seed + 8)
    network = networks.cnn((1, 8, 8), 10, preset="study-c")
    bnn = bf.Variational(network, "categorical", prior="normal:0.5", rho=-5.0)
    data = (digits.x_train.unsqueeze(1) / 16, digits.y_train)
    bnn.fit(data, epochs=60, batch_size=64, learning_rate=2e-3, kl="uniform,warm-up=50", progress=False)
    return bnn, digits.x_test[part].unsqueeze(1) / 16


def line(seed: int) -> tuple[bf.Variational, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.cat((torch.rand(60, 1, generator=generator) - 1.5, torch.rand(60, 1, generator=generator) + 0.5))
    y = torch.sin(2 * x).squeeze(1) + 0.1 * torch.randn(120, generator=generator)
    bnn = bf.Variational(networks.mlp(1, 1, units=50), bf.likelihoods.Gaussian(0.1), estimator="local")
    bnn.fit((x, y), epochs=800, learning_rate=5e-3, progress=False)
    return bnn, torch.linspace(-2.5, 2.5, 21).unsqueeze(1)


@torch.no_grad()
def drawn_moments(bnn: bf.Variational, x: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Mean and variance of every layer's outputs over draws of the weights, and all draws of the last one."""
    links = Propagation(bnn.network, bnn.mean_weights, bnn.std).links
    sums: list[list[Tensor]] = [[] for _ in links]
    squares: list[list[Tensor]] = [[] for _ in links]
    outputs = []
    for first in range(0, DRAWS, CHUNK):
        tensors = bnn.network.unflatten(bnn.weights(range(first, first + CHUNK), seed=1))
        now = x.expand(CHUNK, *x.shape)
        for number, (name, layer) in enumerate(links):
            if isinstance(layer, nn.Linear):
                now = layer_chain._linear(now, tensors[f"{name}weight"], tensors[f"{name}bias"], shared=False)
            elif isinstance(layer, nn.Conv2d):
                now = layer_chain._convolution(
                    layer, now, tensors[f"{name}weight"], tensors[f"{name}bias"], shared=False
                )
            else:
                after = layer(now.flatten(0, 1))
                now = after.view(CHUNK, len(x), *after.shape[1:])
            sums[number].append(now.sum(0, dtype=torch.float64))
            squares[number].append(now.square().sum(0, dtype=torch.float64))
        outputs.append(now)
    moments = []
    for one, two in zip(sums, squares, strict=True):
        mean = torch.stack(one).sum(0) / DRAWS
        moments.append((mean, torch.stack(two).sum(0) / DRAWS - mean.square()))
    return moments, torch.cat(outputs)


def by_layer(bnn: bf.Variational, x: Tensor, drawn: list[tuple[Tensor, Tensor]]) -> list[dict]:
    propagation = Propagation(bnn.network, bnn.mean_weights, bnn.std)
    rows = []
    for (name, layer), (_, got), (mean, variance) in zip(
        propagation.links, propagation.forward_moments(x), drawn, strict=True
    ):
        if got.variance is not None and not isinstance(layer, nn.Flatten):
            rows.append({"layer": f"{name[:-1]} {type(layer).__name__}", **distance(got, mean, variance)})
    return rows


def distance(got: Gaussians, mean: Tensor, variance: Tensor) -> dict[str, float]:
    return {
        "mean_error": float(((got.mean.detach() - mean).square().mean() / variance.mean()).sqrt()),
        "std_ratio": float((got.variance.mean() / variance.mean()).sqrt()),
    }


def whole(bnn: bf.Variational, x: Tensor, outputs: Tensor) -> dict:
    *_, (_, forwards) = Propagation(bnn.network, bnn.mean_weights, bnn.std).forward_moments(x)
    alone = stand_ins(Gaussians(forwards.mean.detach(), forwards.variance))
    answers = {
        "moments": bnn.predict(x, by="moments"),
        "forward variances alone": bf.Predictive(alone, bnn.likelihood),
        "100 draws": bnn.predict(x, draws=100, seed=7),
        "mean weights": bnn.predict(x, by="mean"),
    }
    truth = bf.Predictive(outputs, bnn.likelihood)
    return {name: scores(answer, truth) for name, answer in answers.items()}


def scores(answer: bf.Predictive, truth: bf.Predictive) -> dict[str, float]:
    if truth.kind == "classification":
        variation = 0.5 * (answer.probs - truth.probs).abs().sum(-1)
        return {
            "total_variation": float(variation.mean()),
            "largest_total_variation": float(variation.max()),
            "class_std_ratio": float((answer.std.square().mean() / truth.std.square().mean()).sqrt()),
            "epistemic_ratio": float(answer.epistemic.mean() / truth.epistemic.mean()),
        }
    spread, off = truth.epistemic.sqrt(), answer.std / truth.std - 1
    return {
        "mean_error": float(((answer.mean - truth.mean) / spread).square().mean().sqrt()),
        "epistemic_std_error": float((answer.epistemic.sqrt() / spread - 1).square().mean().sqrt()),
        "predictive_std_error": float(off.square().mean().sqrt()),
        "largest_predictive_std_error": float(off.abs().max()),
    }


def rounding(bnn: bf.Variational, x: Tensor, outputs: Tensor) -> dict[str, dict[str, float]]:
    """What passes in bfloat16 change in answers for all test digits; for moments, also their distance to `outputs`."""
    digits = bf.data.load("digits")
    images, labels = digits.x_test.flatten(1) / 16, digits.y_test
    found = {}
    for how, asked in (("draws", {"draws": 100, "seed": 7}), ("moments", {"by": "moments"})):
        full, half = (bnn.predict(images, precision=name, **asked) for name in ("full", "bfloat16"))
        change = (full.probs - half.probs).abs()
        found[how] = {
            "largest_change": float(change.max()),
            "change": float(change.mean()),
            "largest_change_of_entropy": float((full.entropy - half.entropy).abs().max()),
            "largest_change_of_epistemic": float((full.epistemic - half.epistemic).abs().max()),
            "labels_changed": float((full.labels != half.labels).double().mean()),
            "largest_change_of_nll": float((full.log_prob(labels).mean() - half.log_prob(labels).mean()).abs()),
        }
    answer = bnn.predict(x, by="moments", precision="bfloat16")
    found["moments"] |= scores(answer, bf.Predictive(outputs, bnn.likelihood))
    return found


def cost(repeats: int = 15) -> dict:
    bnn = bf.Variational(networks.mlp(PIXELS, 10), "categorical")
    x = torch.rand(10_000, PIXELS, generator=torch.Generator().manual_seed(0))
    times: dict[str, list[float]] = {"plain": [], "moments": []}
    for _ in range(repeats):
        for name, by in (("plain", "mean"), ("moments", "moments")):
            start = time.process_time()
            assert bnn.predict(x, by=by).outputs.shape[1] == len(x)
            times[name].append(time.process_time() - start)
    plain, moments = (min(times[name]) for name in ("plain", "moments"))
    return {
        "plain_ms": 1000 * plain,
        "moments_ms": 1000 * moments,
        "ratio": moments / plain,
        "products_in_plain_passes": products((PIXELS, 400, 400, 10)),
        "threads": torch.get_num_threads(),
    }


def products(sizes: tuple[int, ...]) -> float:
    """Multiplications of the forward products (two for the first layer, then three) and of one way back."""
    each = [a * b for a, b in itertools.pairwise(sizes)]
    return (2 * each[0] + 3 * sum(each[1:]) + sum(each[1:])) / sum(each)


def averaged(tables: list[dict]) -> dict:
    """Means over seeds of every number; the largest of what is a largest already."""
    return {
        name: (max if name.startswith("largest") else statistics.fmean)(table[name] for table in tables)
        if isinstance(value, float)
        else value
        for name, value in tables[0].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/moments.json"))
    options = parser.parse_args()
    # Sums come out the same on every machine's number of cores, and a time is that of one.
    torch.set_num_threads(1)
    result: dict = {
        "command": "python studies/scripts/moments.py",
        "draws": DRAWS,
        "seeds": options.seeds,
        "networks": {},
    }
    for name, make in (("perceptron", perceptron), ("convolutions", convolutions), ("line", line)):
        layers, answers, rounded = [], [], []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            bnn, x = make(seed)
            drawn, outputs = drawn_moments(bnn, x)
            layers.append(by_layer(bnn, x, drawn))
            answers.append(whole(bnn, x, outputs))
            if name == "perceptron":
                rounded.append(rounding(bnn, x, outputs))
        table = {
            "layers": [averaged(list(rows)) for rows in zip(*layers, strict=True)],
            "answers": {how: averaged([one[how] for one in answers]) for how in answers[0]},
        }
        result["networks"][name] = table
        if rounded:
            result["bfloat16"] = {how: averaged([one[how] for one in rounded]) for how in rounded[0]}
        print(name)
        for row in table["layers"]:
            print(f"  {row['layer']:14}  mean error {row['mean_error']:.3f}  std ratio {row['std_ratio']:.3f}")
        for how, numbers in table["answers"].items():
            print(f"  {how:24}  " + "  ".join(f"{what} {value:.4f}" for what, value in numbers.items()))
    for how, numbers in result["bfloat16"].items():
        print(f"bfloat16, {how}  " + "  ".join(f"{what} {value:.3g}" for what, value in numbers.items()))
    result["cost"] = cost()
    print("cost  " + "  ".join(f"{what} {value:.3g}" for what, value in result["cost"].items()))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
