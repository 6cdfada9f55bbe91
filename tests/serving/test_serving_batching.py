"""The same input and seed give the same bits, whatever else is asked at the same time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from starlette.exceptions import HTTPException
from talking import serving
from torch import nn

import bayesify as bf
from bayesify import networks
from bayesify.likelihoods import Bernoulli, Categorical, Gaussian, GaussianLogits, Poisson
from bayesify.serving.batching import Batcher
from bayesify.serving.limits import Limits
from bayesify.serving.models import Registry
from bayesify.serving.predictor import SIZES, Predictor
from bayesify.serving.weight_cache import WeightCache


def mlp(outputs=7, units=32):
    return networks.mlp(12, outputs, units=units, layers=2)


def convolutions():
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)),
        nn.Conv2d(1, 5, 3, padding=1),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(60, 7),
    )


def laplace(predictive):
    """A Gaussian wide enough that the network at its draws is not the network linearised."""
    x = torch.randn(40, 12, generator=torch.Generator().manual_seed(4))
    return bf.LaplaceApproximation(mlp(), Categorical(), predictive=predictive).approximate((x, torch.arange(40) % 7))


METHODS = {
    "laplace": lambda: laplace("linearised"),
    "laplace by weights": lambda: laplace("weights"),
    "point": lambda: bf.PointEstimate(mlp(), Categorical()),
    "ensemble": lambda: bf.Ensemble(mlp(), Categorical(), members=3),
    "ensemble with statistics": lambda: bf.Ensemble(convolutions(), Categorical(), members=3),
    "dropout": lambda: bf.MCDropout(mlp(), Categorical(), p=0.3),
    "variational, odd": lambda: bf.Variational(mlp(units=33), Categorical(), rho=-2.0),
    "variational": lambda: bf.Variational(mlp(), Categorical(), rho=-2.0),
    "variational, large": lambda: bf.Variational(mlp(units=400), Categorical(), rho=-3.0),
    "yes or no": lambda: bf.Variational(mlp(1), Bernoulli(), rho=-2.0),
    "uncertain logits": lambda: bf.Variational(mlp(6), GaussianLogits(samples=20), rho=-2.0),
    "numbers": lambda: bf.Variational(mlp(1), Gaussian(0.3), rho=-2.0),
    "numbers with noise of their own": lambda: bf.Variational(mlp(2), Gaussian("heteroscedastic"), rho=-2.0),
    "counts": lambda: bf.Variational(mlp(1), Poisson(), rho=-2.0),
}


@pytest.fixture
def inputs():
    return torch.randn(75, 12, generator=torch.Generator().manual_seed(3))


def prepared(name, inputs):
    method = METHODS[name]()
    method._try(inputs[:2])
    return method.eval()


def bits(prediction):
    return {name: values.tobytes() for name, values in prediction.table.items()}


@pytest.mark.parametrize("name", METHODS)
def test_an_answer_has_the_same_bits_alone_and_in_any_company(name, inputs):
    predictor = Predictor(prepared(name, inputs))
    alone = [predictor.predict(inputs[i : i + 1], 11, 5) for i in range(12)]
    order = torch.randperm(75, generator=torch.Generator().manual_seed(1))
    for rows in (torch.arange(75), order, order[:3], order[10:18], order[20:61]):
        together = predictor.predict(inputs[rows], 11, 5)
        for place, row in enumerate(rows.tolist()):
            if row < len(alone):
                assert bits(together.rows(place, place + 1)) == bits(alone[row])
                assert torch.equal(together.outputs[:, place : place + 1], alone[row].outputs)


@pytest.mark.parametrize("name", METHODS)
def test_answers_are_those_of_the_library(name, inputs):
    method = prepared(name, inputs)
    said = Predictor(method).predict(inputs, 11, 5).table
    ours = method.predict(inputs, draws=11, seed=5)
    names = {"label": "labels"}
    for key in said:
        theirs = torch.stack(ours.interval(), -1) if key == "interval" else getattr(ours, names.get(key, key))
        np.testing.assert_allclose(said[key], theirs.numpy(), rtol=2e-4, atol=1e-6, err_msg=key)


def test_a_network_that_looks_at_its_neighbours_is_asked_row_by_row(inputs):
    class Centring(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 3)

        def forward(self, x):
            return self.layer(x) + (x - x.mean(0)).sum(-1, keepdim=True)

    predictor = Predictor(bf.Variational(Centring(), Categorical()).eval())
    alone = predictor.predict(inputs[:1], 4, 0)
    assert predictor.sizes(4)[0] == (1,)
    assert bits(predictor.predict(inputs[:5], 4, 0).rows(0, 1)) == bits(alone)


def test_large_activations_are_not_filled_up(inputs):
    network = nn.Sequential(nn.Linear(12, 20_000), nn.ReLU(), nn.Linear(20_000, 3))
    predictor = Predictor(bf.PointEstimate(network, Categorical()).eval())
    predictor.predict(inputs[:1], 4, 0)
    assert predictor.sizes(4)[0] == (1,)


def test_weights_are_drawn_once_for_each_seed(inputs):
    method = prepared("variational", inputs)
    drawn, weights = [], method.weights
    method.weights = lambda draws, seed: drawn.append((len(draws), seed)) or weights(draws, seed)
    predictor = Predictor(method)
    for seed in (0, 1, 0, 1, 0):
        predictor.predict(inputs[:3], 6, seed)
    assert drawn == [(6, 0), (6, 1)]


def test_the_least_recently_used_weights_make_room(inputs):
    method = prepared("variational", inputs)
    size = 6 * method.network.size * 4
    cache = WeightCache(2 * size)
    predictor = Predictor(method, cache)
    first = predictor.predict(inputs[:3], 6, 0)
    for seed in (1, 0, 2):
        predictor.predict(inputs[:3], 6, seed)
    assert len(cache) == 2
    assert cache.size <= cache.capacity
    drawn, weights = [], method.weights
    method.weights = lambda draws, seed: drawn.append(seed) or weights(draws, seed)
    for seed in (0, 2, 1):
        predictor.predict(inputs[:3], 6, seed)
    assert drawn == [1]
    # Too large to keep at all, it is drawn each time, to the same bits.
    small = Predictor(method, WeightCache(size - 1))
    assert bits(small.predict(inputs[:3], 6, 0)) == bits(first)
    assert len(small.cache) == 0


def test_a_compiler_that_fails_is_done_without(inputs, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", broken)
    method = prepared("variational", inputs)
    predictor = Predictor(method, compile_for=6)
    assert bits(predictor.predict(inputs[:3], 6, 0)) == bits(Predictor(method).predict(inputs[:3], 6, 0))
    assert not predictor.compiled
    assert "no compiler here" in caplog.text


def test_compiled_passes_serve_the_number_of_draws_they_were_made_for(inputs, monkeypatch):
    calls = []

    def compiling(function, **options):
        assert options == {"dynamic": False}
        return lambda links, tensors, x: calls.append(len(x)) or function(links, tensors, x)

    monkeypatch.setattr(torch, "compile", compiling)
    predictor = Predictor(prepared("variational", inputs), compile_for=6)
    predictor.predict(inputs[:3], 6, 0)
    assert predictor.compiled
    assert set(calls) == set(SIZES)
    calls.clear()
    predictor.predict(inputs[:3], 6, 1)
    predictor.predict(inputs[:3], 5, 0)
    assert calls == [SIZES[0]]


def test_requests_that_arrive_together_share_a_batch(inputs):
    method = prepared("variational", inputs)
    sizes = []

    async def ask():
        with ThreadPoolExecutor(1) as worker:
            batcher = Batcher(worker, Limits(window=0.05, batch=64), sizes.append)
            predictor = Predictor(method)
            asked = [batcher.predict(predictor, inputs[i : i + 1], 6, i % 2) for i in range(20)]
            answers = await asyncio.gather(*asked)
            await batcher.stop()
            with pytest.raises(HTTPException, match="shutting down"):
                await batcher.predict(predictor, inputs[:1], 6, 0)
            return answers

    answers = asyncio.run(ask())
    # Ten of each seed: only the same draws can be made together.
    assert sorted(sizes) == [10, 10]
    predictor = Predictor(method)
    for i, answer in enumerate(answers):
        assert bits(answer) == bits(predictor.predict(inputs[i : i + 1], 6, i % 2))
        assert answer.outputs.numel() == 0


def test_small_requests_pass_between_the_pieces_of_a_large_one(inputs):
    method = prepared("variational", inputs)
    finished = []

    async def ask():
        with ThreadPoolExecutor(1) as worker:
            batcher, predictor = Batcher(worker, Limits(window=0.0, batch=8)), Predictor(method)

            async def one(name, x, seed):
                await batcher.predict(predictor, x, 6, seed)
                finished.append(name)

            await asyncio.gather(one("large", inputs, 0), *(one("small", inputs[:2], seed) for seed in (1, 2)))
            await batcher.stop()

    asyncio.run(ask())
    assert finished == ["small", "small", "large"]


def test_who_gives_up_leaves_no_trace(inputs):
    method = prepared("variational", inputs)
    sizes = []

    async def ask():
        with ThreadPoolExecutor(1) as worker:
            batcher, predictor = Batcher(worker, Limits(window=0.5), sizes.append), Predictor(method)
            impatient = asyncio.create_task(batcher.predict(predictor, inputs[:5], 6, 0))
            patient = asyncio.create_task(batcher.predict(predictor, inputs[5:7], 6, 0))
            for _ in range(3):  # turns of the event loop: a time could be longer than the window on a busy machine
                await asyncio.sleep(0)
            impatient.cancel()
            answer = await patient
            await batcher.stop()
            return answer, batcher.waiting

    answer, waiting = asyncio.run(ask())
    assert bits(answer) == bits(Predictor(method).predict(inputs[5:7], 6, 0))
    assert (waiting, sizes) == (0, [2])


def test_over_http_company_changes_nothing(folders, images):
    names = ["variational", "mc-dropout", "plain"]
    limits = Limits(window=0.02)
    with serving(Registry([folders[name] for name in names], limits=limits, threads=1)) as client:
        asked = [(names[i % 3], images[i : i + 1 + i % 4], {"draws": 9, "seed": i % 2}) for i in range(48)]

        def ask(one):
            name, array, parameters = one
            return client.tensors(name, array, parameters=parameters)

        alone = [ask(one) for one in asked]
        # Long enough for requests of the same kind to meet, however slowly a busy machine sends them.
        client.registry.batcher.limits = replace(limits, window=0.5)
        with ThreadPoolExecutor(16) as clients:
            together = list(clients.map(ask, asked))
        assert together == alone
        value = client.registry.metrics.registry.get_sample_value
        assert value("bayesify_batch_inputs_sum") == 2 * sum(len(array) for _, array, _ in asked)
        # Alone there was a batch for each request; together there must have been far fewer.
        assert value("bayesify_batch_inputs_count") < 48 + 40


def test_a_predictive_for_python_comes_from_the_same_queue(folders, images):
    async def ask():
        registry = Registry([folders["variational"]], threads=1)
        await registry.start()
        model = registry.get("variational")
        x = model.preparation.apply(torch.as_tensor(images[:70]))
        predictive = await model.predict(x, draws=8, seed=2)
        answer = await model.table(x, draws=8, seed=2)
        await registry.stop()
        return model, x, predictive, answer

    model, x, predictive, answer = asyncio.run(ask())
    assert predictive.class_names == model.class_names == tuple("012456789")
    torch.testing.assert_close(predictive.outputs, model.method.draw(x, draws=8, seed=2))
    np.testing.assert_allclose(predictive.probs, answer["probs"], rtol=1e-5, atol=1e-7)


def test_names_are_those_of_the_folders_and_never_the_same(folders, tmp_path):
    import shutil

    for place in ("a", "b", "c/plain-2"):
        shutil.copytree(folders["plain"], tmp_path / place / "plain" if len(place) == 1 else tmp_path / place)
    registry = Registry([tmp_path / "a", tmp_path / "b" / "plain", tmp_path / "c"])
    assert registry.names() == ["plain", "plain-2", "plain-2-2"]
    with pytest.raises(HTTPException, match="did you mean 'plain'"):
        registry.get("plane")
    with pytest.raises(ValueError, match="no run to serve"):
        Registry([])
