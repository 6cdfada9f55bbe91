"""Learning on: two tasks give the posterior of both at once; heads, coresets and discounts."""

import pytest
import torch

import bayesify as bf
from bayesify.decisions import Continual
from bayesify.errors import RunError


def line(seed=0, **options):
    net = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    return bf.Variational(net, "gaussian:0.5", prior="normal:1", estimator="local", seed=seed, **options)


def orthogonal(seed):
    """Examples whose posterior has no correlations, so that mean-field is exact."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.eye(3).repeat(20, 1)
    return x, x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.5 * torch.randn(60, 1, generator=generator)


PLAN = {"epochs": 300, "batch_size": 60, "learning_rate": 0.05, "schedule": "cosine", "progress": False}


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_two_tasks_give_the_exact_posterior_of_both():
    tasks = [orthogonal(0), orthogonal(1)]
    learner = Continual(line())
    for data in tasks:
        learner.learn(data, **PLAN)
    x, y = (torch.cat(parts) for parts in zip(*tasks, strict=True))
    precision = x.square().sum(0) / 0.25 + 1
    mean = (x * y).sum(0) / 0.25 / precision
    std = precision.rsqrt()
    assert learner.tasks == ["0", "1"]
    # Within a fifth of a posterior standard deviation, and a tenth of the width.
    assert ((learner.method.mean_weights - mean).abs() < 0.2 * std).all()
    assert ((learner.method.std / std - 1).abs() < 0.1).all()


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_a_discount_makes_the_next_prior_wider():
    learner = Continual(line(), discount=0.5)
    learner.learn(orthogonal(0), **PLAN | {"epochs": 20})
    old = learner.method.std
    method = learner._next()
    scale = torch.cat([group.varying()["scale"] for group in method.prior.groups]).flatten()
    assert torch.allclose(scale, (0.5 / old**2 + 0.5).rsqrt(), rtol=1e-4)
    assert torch.equal(method.mu, learner.method.mu)


def two_tasks():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator)
    y = (x[:, 0] + x[:, 1] > 0).long()
    return x, y, 1 - y


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_heads_keep_tasks_that_contradict_each_other():
    torch.manual_seed(0)
    x, y, opposite = two_tasks()
    plan = {"epochs": 40, "batch_size": 50, "learning_rate": 0.02, "progress": False}
    method = bf.Variational(bf.networks.mlp(4, 2, units=8, layers=1), "categorical", prior="normal:1", seed=0)
    learner = Continual(method, heads=True, coreset=10)
    learner.learn((x, y), "same", **plan)
    learner.learn((x, opposite), "opposite", **plan)
    for task, truth in (("same", y), ("opposite", opposite)):
        assert float((learner.predict(x, task, draws=20).labels == truth).float().mean()) > 0.9
    learner.rehearse(**plan | {"epochs": 5})
    for task, truth in (("same", y), ("opposite", opposite)):
        assert float((learner.predict(x, task, draws=20).labels == truth).float().mean()) > 0.9
    with pytest.raises(ValueError, match="name the task"):
        learner.predict(x)
    with pytest.raises(ValueError, match="not learned"):
        learner.predict(x, "third")


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_coresets_are_kept_apart_and_rehearsed_for_predictions_alone():
    x, y, _ = two_tasks()
    seen = []
    method = bf.Variational(bf.networks.mlp(4, 2, units=4, layers=1), "categorical", prior="normal:1", seed=0)
    fit = method.fit
    method.fit = lambda data, **settings: seen.append(data[0]) or fit(data, **settings)
    learner = Continual(method, coreset=30)
    learner.learn((x, y), epochs=2, progress=False)
    kept = learner._kept["0"][0]
    assert len(seen[0]) == 170
    assert len(kept) == 30
    assert not (seen[0][:, None] == kept[None]).all(-1).any()
    del method.fit
    before = learner.method.mu.detach().clone()
    learner.rehearse(epochs=2, progress=False)
    assert torch.equal(before, learner.method.mu)
    assert not torch.equal(before, learner.method_for().mu)


def test_what_is_impossible_is_refused():
    with pytest.raises(TypeError, match="use Variational, got PointEstimate"):
        Continual(bf.PointEstimate(torch.nn.Linear(3, 1), "gaussian:1"))
    with pytest.raises(ValueError, match="mean_field"):
        Continual(bf.Variational(torch.nn.Linear(3, 1), "gaussian:1", family="full_rank"))
    with pytest.raises(ValueError, match="fixed scales"):
        Continual(bf.Variational(torch.nn.Linear(3, 1), "gaussian:1", prior="normal:half-cauchy(1)"))
    with pytest.raises(ValueError, match="discount"):
        Continual(line(), discount=1.0)
    learner = Continual(line(), coreset=100)
    with pytest.raises(ValueError, match="more than the 100"):
        learner.learn(orthogonal(0))
    with pytest.raises(ValueError, match="nothing to rehearse"):
        learner.rehearse()
    with pytest.raises(ValueError, match="no task was learned"):
        learner.predict(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="same length"):
        Continual(line()).learn((torch.zeros(3, 3), torch.zeros(2, 1)))
    with pytest.raises(TypeError, match=r"a pair \(x, y\), a Dataset or a DataLoader, got Tensor"):
        Continual(line()).learn(torch.zeros(3, 3))


@pytest.mark.parametrize("prior", ["laplace:1", "normal:fan_in", {"*weight": "normal:1", "*": "normal:2"}])
def test_a_discount_needs_one_normal_prior_before_anything_is_learned(prior):
    method = bf.Variational(bf.networks.mlp(3, 2, units=4), "categorical", prior=prior, seed=0)
    with pytest.raises(ValueError, match="one normal prior for all weights, such as normal:1, got"):
        Continual(method, discount=0.1)
    learner = Continual(method)
    learner.discount = 0.1  # as `learn-on --discount` sets it
    with pytest.raises(ValueError, match="one normal prior"):
        learner.learn((torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])))
    assert learner.tasks == []


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_a_data_set_is_learned_like_its_tensors():
    x, y, _ = two_tasks()

    def learned(data):
        torch.manual_seed(0)
        method = bf.Variational(bf.networks.mlp(4, 2, units=4, layers=1), "categorical", prior="normal:1", seed=0)
        learner = Continual(method, coreset=10)
        learner.learn(data, epochs=2, progress=False)
        return learner.method.mu

    assert torch.equal(learned(torch.utils.data.TensorDataset(x, y)), learned((x, y)))


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_saved_heads_predict_with_their_rehearsed_posteriors(tmp_path):
    x, y, opposite = two_tasks()
    torch.manual_seed(0)
    method = bf.Variational(bf.networks.mlp(4, 2, units=4, layers=1), "categorical", prior="normal:1", seed=0)
    learner = Continual(method, heads=True, coreset=10)
    learner.learn((x, y), "same", epochs=3, progress=False)
    learner.learn((x, opposite), "opposite", epochs=3, progress=False)
    before = learner.predict(x, "same", draws=10).probs
    learner.rehearse(epochs=5, learning_rate=0.05, progress=False)
    learner.save(tmp_path / "run")
    again = Continual.load(tmp_path / "run")
    for task in learner.tasks:
        assert torch.equal(again.predict(x, task, draws=10).probs, learner.predict(x, task, draws=10).probs)
    assert not torch.equal(again.predict(x, "same", draws=10).probs, before)


def test_a_saved_learner_goes_on_as_if_it_had_not_been_saved(tmp_path):
    x, y = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    torch.manual_seed(0)
    net = bf.networks.mlp(3, 2, units=4)
    learner = Continual(bf.Variational(net, "categorical", prior="normal:1", seed=0), coreset=5, discount=0.25)
    learner.learn((x, y), "a", epochs=2, progress=False)
    learner.rehearse(epochs=2, progress=False)
    learner.save(tmp_path / "run")
    again = Continual.load(tmp_path / "run")
    assert torch.equal(again.predict(x).probs, learner.predict(x).probs)  # the rehearsed posterior
    for one in (learner, again):
        one.learn((x + 1, y), "b", epochs=2, progress=False)
        one.rehearse(epochs=2, progress=False)
    assert torch.equal(again.method.mu, learner.method.mu)
    assert torch.equal(again.predict(x).probs, learner.predict(x).probs)
    bf.Variational(net, "categorical", prior="normal:1", seed=1).save(tmp_path / "other")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "run" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(RunError, match="other weights"):
        Continual.load(tmp_path / "run")
    with pytest.raises(RunError, match="was not written by"):
        Continual.load(tmp_path)


def test_a_trained_method_is_the_first_task():
    x, y = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    bnn = bf.Variational(bf.networks.mlp(3, 2, units=4), "categorical", prior="normal:1", seed=0)
    bnn.fit((x, y), epochs=2, progress=False)
    learner = Continual(bnn, learned=["before"])
    learner.learn((x, y), epochs=1, progress=False)
    assert learner.tasks == ["before", "1"]
    scale, mean = learner.method.prior.groups[0].prior.scale_and_mean(learner.method.network.weights[0])
    assert torch.allclose(mean, bnn.mean_weights[: len(mean)])
    assert torch.allclose(scale, bnn.std[: len(scale)])
    with pytest.raises(ValueError, match="leave out learned"):
        Continual(bnn, learned=["before"], heads=True)
