"""Sizes, accuracy and speed of exported graphs on digits: `python studies/scripts/export_sizes.py`. About two minutes.

One variational network, 64-100-100-10, is trained once. Each file is scored on the test part under ONNX Runtime, with
one thread. Times are the best of 30, which other work on the machine disturbs least. A ratio is the time of `predict`
with the same draws over that of ONNX Runtime.
"""

import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import bayesify as bf
from bayesify.data import open_data

DRAWS = 30


def main():
    torch.set_num_threads(1)
    data = open_data("digits")
    prepared = data.prepare()
    x, y, test, labels = prepared.x_train, prepared.y_train, prepared.x_test, prepared.y_test
    torch.manual_seed(0)
    bnn = bf.Variational(bf.networks.mlp(64, 10, units=[100, 100]), "categorical", prior="normal:0.3", seed=0)
    bnn.fit((x, y), epochs=100, learning_rate=0.003, progress=False)
    pruned = {share: bf.prune(bnn, share) for share in (0.5, 0.75)}
    ways = {
        f"{DRAWS} draws": (bnn, {"draws": DRAWS}),
        f"{DRAWS} draws, int8": (bnn, {"draws": DRAWS, "int8": True}),
        "10 draws": (bnn, {"draws": 10}),
        "10 draws, int8": (bnn, {"draws": 10, "int8": True}),
        "moments": (bnn, {"by": "moments"}),
        "mean weights": (bnn, {"by": "mean"}),
        "mean weights, int8": (bnn, {"by": "mean", "int8": True}),
        **{f"{DRAWS} draws, {share:.0%} pruned": (small, {"draws": DRAWS}) for share, small in pruned.items()},
    }
    print(f"{len(labels)} test digits, {bnn.network.size:,} weights; torch {torch.__version__}")
    print("| graph | kB | kB, gzip | accuracy | NLL | 1 input, ms | ratio | 1,000 inputs, ms | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, (method, options)) in enumerate(ways.items()):
            file = Path(folder) / f"{number}.onnx"
            bf.export(method, file, **options)
            print(row(title, file, method, options, test, labels), flush=True)


def row(title, file, method, options, test, labels):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    probs = session.run(["probs"], {"input": test.numpy()})[0]
    accuracy = float((probs.argmax(1) == labels.numpy()).mean())
    nll = float(-np.log(probs[np.arange(len(labels)), labels.numpy()]).mean())
    content = file.read_bytes()
    sizes = [len(content) / 1e3, len(gzip.compress(content)) / 1e3]
    how = {"draws": options.get("draws", 1), "by": options.get("by", "draws")}
    times = []
    for inputs in (test[:1], test[torch.arange(1000) % len(test)]):
        theirs, ours = timed(
            lambda inputs=inputs: session.run(None, {"input": inputs.numpy()}),
            lambda inputs=inputs: answers(method, inputs, how),
        )
        times += [f"{1e3 * theirs:.2f}", f"{ours / theirs:.1f}"]
    cells = [title, f"{sizes[0]:,.0f}", f"{sizes[1]:,.0f}", f"{accuracy:.4f}", f"{nll:.4f}", *times]
    return f"| {' | '.join(cells)} |"


def answers(method, inputs, how):
    predictive = method.predict(inputs, **how)
    return predictive.probs, predictive.aleatoric, predictive.epistemic


def timed(*works, repeats=30):
    """The best time of each, in turns."""
    times = [[] for _ in works]
    for _ in range(repeats + 2):
        for work, found in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            found.append(time.perf_counter() - start)
    return [min(found[2:]) for found in times]


if __name__ == "__main__":
    main()
