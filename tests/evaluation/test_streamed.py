"""Scores and predictions of many inputs, a part at a time: the same numbers, and only the draws of one part kept."""

import pytest
import torch

import bayesify as bf
from bayesify.methods import memory, prediction


@pytest.fixture(scope="module")
def methods():
    torch.manual_seed(0)
    x = torch.randn(90, 2)
    classes = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", rho=-2.0)
    classes.fit((x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()), epochs=3, progress=False)
    noisy = bf.Variational(bf.networks.mlp(2, 6, units=8), bf.likelihoods.GaussianLogits(), rho=-2.0)
    numbers = bf.Variational(bf.networks.mlp(2, 1, units=8), "gaussian:learned", rho=-2.0)
    numbers.fit((x, x[:, :1].sin().squeeze(1)), epochs=3, progress=False)
    counts = bf.PointEstimate(bf.networks.mlp(2, 1, units=8), "poisson")
    return x, {"classes": classes, "noisy logits": noisy, "numbers": numbers, "counts": counts}


def targets(name, x):
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    return {"numbers": x[:, 0].sin(), "counts": labels.double()}.get(name, labels)


@pytest.mark.parametrize("name", ["classes", "noisy logits", "numbers", "counts"])
@pytest.mark.parametrize("by", ["draws", "mean"])
def test_scores_do_not_depend_on_the_parts(methods, name, by, monkeypatch):
    x, trained = methods
    method, y = trained[name], targets(name, methods[0])
    whole = bf.evaluate(method, (x, y), ood=x + 5, draws=30, by=by).to_dict()
    one = method.predict(x[:1], draws=30, by=by).outputs
    monkeypatch.setattr(
        type(method).predict_in_parts,
        "__defaults__",
        (*prediction.Prediction.predict_in_parts.__defaults__[:-1], 16 * one.numel() * 4),
    )
    assert len(list(method.predict_in_parts(x, draws=30, by=by))) == 6
    parts = bf.evaluate(method, (x, y), ood=x + 5, draws=30, by=by).to_dict()
    assert parts.keys() == whole.keys()
    for score, value in whole.items():
        if isinstance(value, float):
            assert parts[score] == pytest.approx(value, rel=1e-5, abs=1e-7), score
        elif isinstance(value, dict) and score != "warnings":
            assert parts[score] == pytest.approx(value, rel=1e-5), score
        else:
            assert parts[score] == value, score


def test_parts_of_whole_batches_have_the_same_bits(methods):
    x, trained = methods
    method = trained["classes"]
    whole = method.predict(x, draws=20, batch_size=15).outputs
    parts = list(method.predict_in_parts(x, draws=20, batch_size=15, max_memory=40 * 20 * 3 * 4))
    assert [len(part) for part in parts] == [30, 30, 30]
    assert torch.equal(torch.cat([part.outputs for part in parts], 1), whole)


def test_a_prediction_that_does_not_fit_is_refused_before_any_work(methods, monkeypatch):
    x, trained = methods
    method = trained["classes"]
    monkeypatch.setattr(method, "outputs_at", lambda *args: pytest.fail("worked before it refused"))
    words = r"20,000 draws of 90 inputs need 21.6 MB \(21,600,000 bytes\), more than max_memory, 20.0 MB: predict fewer"
    with pytest.raises(MemoryError, match=words):
        method.predict(x, draws=20_000, max_memory=20_000_000)
    monkeypatch.setattr(memory, "available", lambda device: 10**9)
    with pytest.raises(MemoryError, match=r"more than max_memory, 500\.0 MB"):
        method.predict(x, draws=1_000_000)
    with pytest.raises(ValueError, match="max_memory must be an integer of at least 1"):
        method.predict(x, max_memory=0)


def test_torchs_errors_about_memory_are_one_line(methods, monkeypatch):
    x, trained = methods
    method = trained["classes"]

    def fails(*args):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 8000000000000 bytes. Error code 12 (Cannot allocate memory)\nframe #0"
        )

    monkeypatch.setattr(method, "outputs_at", fails)
    with pytest.raises(MemoryError, match=r"^not enough memory for 100 draws of 90 inputs: predict fewer") as caught:
        method.predict(x)
    assert "\n" not in str(caught.value)


def test_the_memory_of_this_machine_is_found():
    free = memory.available(torch.device("cpu"))
    assert free is None or 10**7 < free < 10**15


def test_evaluate_keeps_the_draws_of_one_part_only(methods, monkeypatch):
    x, trained = methods
    method, y = trained["classes"], targets("classes", x)
    kept, parts = [], prediction.Prediction.predict_in_parts

    def small(self, *arguments, **settings):
        for part in parts(self, *arguments, **settings, max_memory=16 * 30 * 3 * 4):
            kept.append(len(part))
            yield part

    monkeypatch.setattr(type(method), "predict_in_parts", small)
    bf.evaluate(method, (x, y), draws=30)
    assert kept == [16, 16, 16, 16, 16, 10]
