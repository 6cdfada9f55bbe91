"""What several processes train in `test_sharded.py`, each with a part of the weights."""

import contextlib
import gc
import os
from pathlib import Path

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from training_cases import BATCH, data, perceptron, trained, variational, weights

import bayesify as bf
from bayesify.distributed.sharding import Shard
from bayesify.functional import sharded_pass

EXPECTS_ERRORS = True
# A few layers of the small networks here, so that a pass gathers several times.
sharded_pass.BUCKET_WEIGHTS = 20


def sharded(method, **settings):
    return trained(method, distributed="sharded", **settings)


def point():
    return sharded(bf.PointEstimate(perceptron(), "categorical", prior="normal:1"))


def mc_dropout():
    return sharded(bf.MCDropout(perceptron(), "categorical", p=0.3))


def weight_estimator():
    return sharded(variational(), draws=2)


def local():
    return sharded(variational(estimator="local"))


def flipout():
    return sharded(variational(estimator="flipout"))


def ivon():
    return sharded(bf.IVON(perceptron(), "categorical"), learning_rate=0.05)


def swag():
    return sharded(bf.SWAG(perceptron(), "categorical", rank=5), optimizer="sgd:momentum=0.9", learning_rate=0.05)


def sgld():
    return sharded(bf.SGLD(perceptron(), "categorical", chains=2, samples=4), learning_rate=1e-3)


def sghmc():
    return sharded(bf.SGHMC(perceptron(), "categorical", chains=2, samples=4), learning_rate=1e-3)


def laplace():
    return sharded(bf.LaplaceApproximation(perceptron(), "categorical", subset="last_layer"))


def ensemble():
    return sharded(bf.Ensemble(perceptron(nn.Dropout(0.2)), "categorical", members=2, prior="normal:1"), clip_norm=0.05)


def sgld_batch_norm():
    """Weights that are not random, and running statistics of each chain."""
    net = perceptron(nn.BatchNorm1d(16)).double()
    return sharded(bf.SGLD(net, "categorical", chains=2, samples=4, bayesian=["3"]), learning_rate=1e-3)


def mixture_prior():
    return sharded(bf.Variational(perceptron(), "categorical", prior="scale-mixture:0.75,1,0.1"), draws=2)


def stick_the_landing():
    return sharded(variational(gradient="stick_the_landing"))


def priors_by_layer():
    """Scales that differ between the weights, a prior centred on given weights, and weights that are not random."""
    prior = {"0.*": "laplace:fan_in", "*": "pretrained:0.5"}
    net = nn.Sequential(*perceptron()[:2], nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    return sharded(bf.Variational(net, "categorical", prior=prior, bayesian=["0", "4.weight"]))


def ivon_last_layer():
    """Most weights are not random, and follow Adam."""
    return sharded(bf.IVON(perceptron(), "categorical", prior="normal:fan_in", bayesian="last_layer"))


def batch_norm():
    return sharded(variational(perceptron(nn.BatchNorm1d(16)).double()))


def batch_norm_few_examples():
    """A last batch of 2 examples: some of the processes have none."""
    x, y = data()
    return sharded(variational(perceptron(nn.BatchNorm1d(16)).double()), data=(x[:98], y[:98]))


def clipped():
    return sharded(variational(), clip_norm=0.05)


def ivon_clipped():
    return sharded(bf.IVON(perceptron(), "categorical"), learning_rate=0.05, clip_norm=0.05)


def accumulated():
    return sharded(variational(perceptron(nn.Dropout(0.2))), accumulate=3)


def averaged():
    return sharded(variational(), ema=0.9, schedule="cosine")


def validated():
    return sharded(variational(), validation=data(61, seed=1), keep="best", patience=3, learning_rate=0.1)


def learned_noise():
    """A parameter that every process holds: the noise of the likelihood."""
    torch.manual_seed(0)
    x, _ = data()
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    return sharded(bf.Variational(net, "gaussian:learned", prior="normal:1"), data=(x, x[:, :1].sin()))


class Attention(nn.Module):
    """Weights that other modules read: the projection of attention, and a tied embedding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.twice = nn.Linear(8, 8)
        self.last = nn.Linear(11, 3)

    def forward(self, x):
        h = self.embed(x)
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        h = self.twice(torch.tanh(self.twice(h))).mean(1)
        return self.last(h @ self.embed.weight.T)


def attention():
    torch.manual_seed(0)
    x, y = data()
    tokens = (x.abs() * 3).long().clamp(max=10)
    # Adam would enlarge the rounding error of the bias of the keys, which has no effect on the loss.
    return sharded(variational(Attention().double()), data=(tokens, y), optimizer="sgd", learning_rate=0.2)


def bfloat16():
    return sharded(variational(), precision="bfloat16")


# Processes that draw their own weights.


def copies():
    x, y = data()
    return x[:1].expand(16, -1).clone(), y[:1].expand(16).clone()


def own(method, **settings):
    """Four processes with one draw each, or one process with four draws."""
    draws = 4 // int(os.environ.get("WORLD_SIZE", "1"))
    plan = {"epochs": 20, "batch_size": 8, "progress": False, "draws": draws, "distributed": "sharded-own-draws"}
    method.fit(copies(), **plan | settings)
    return weights(method)


def own_variational():
    return own(bf.Variational(perceptron(), "categorical", prior="scale-mixture:0.75,1,0.1"), learning_rate=0.02)


def own_closed_kl():
    return own(variational(), learning_rate=0.02)


def own_ivon():
    return own(bf.IVON(perceptron(), "categorical"), learning_rate=0.05)


# The memory of a process.


class Gathers:
    """Counts the bytes of gathered weights that exist at one time, also those that only autograd keeps."""

    def __init__(self):
        self.alive, self.most, self.gather = [], 0, Shard.gather

    def __enter__(self):
        def counted(shard, piece, number):
            found = self.gather(shard, piece, number)
            storage = found.untyped_storage()
            self.alive = [pair for pair in self.alive if not pair[0].expired()]
            self.alive.append((StorageWeakRef(storage), storage.nbytes()))
            self.most = max(self.most, sum(size for _, size in self.alive))
            return found

        Shard.gather = counted
        return self

    def __exit__(self, *_):
        Shard.gather = self.gather


def held():
    """Bytes of all tensors of this process that Python can reach; views count once."""
    sizes = {}
    for found in gc.get_objects():
        if type(found) in {torch.Tensor, nn.Parameter} and found.device.type == "cpu":
            # A batched tensor of vmap has no memory of its own.
            with contextlib.suppress(NotImplementedError):
                for tensor in (found, found.grad) if found.is_leaf else (found,):
                    if tensor is not None:
                        storage = tensor.untyped_storage()
                        sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


class Counts(bf.callbacks.Callback):
    def __init__(self):
        self.after_step, self.gathers = 0, Gathers()

    def on_fit_start(self, method, plan):
        self.gathers.__enter__()

    def on_step_end(self, method, step):
        gc.collect()
        self.after_step = max(self.after_step, held())

    def on_fit_end(self, method, history):
        self.gathers.__exit__()


def memory(method, **settings):
    counts = Counts()
    gc.collect()
    before = held()
    made = method()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 128, generator=generator), torch.zeros(8, dtype=torch.long)
    made.fit((x, y), epochs=2, batch_size=8, progress=False, callbacks=[counts], distributed="sharded", **settings)
    found = {"after a step": counts.after_step - before, "gathered": counts.gathers.most}
    return {name: torch.tensor(value) for name, value in found.items()}


def wide():
    """9 layers of 16,512 weights, 594 kB in float32; a bucket is one layer."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(128, 128) for _ in range(9)))


def variational_memory():
    return memory(lambda: bf.Variational(wide(), "categorical", prior="normal:1"))


def ivon_memory():
    return memory(lambda: bf.IVON(wide(), "categorical"))


def sghmc_memory():
    return memory(lambda: bf.SGHMC(wide(), "categorical", chains=1, samples=3), learning_rate=1e-4)


# Checkpoints: each case goes on with the run of the one before it, with another number of processes.


def run_folder():
    return Path(os.environ["SHARDED_RUN"])


def methods():
    return {
        "variational": (variational, {"ema": 0.9}),
        # Without a warm-up, whose length would depend on the planned epochs.
        "ivon": (
            lambda: bf.IVON(perceptron(), "categorical", bayesian="last_layer", adam_share=0.0),
            {"learning_rate": 0.05},
        ),
        "sghmc": (lambda: bf.SGHMC(perceptron(), "categorical", chains=2, samples=2), {"learning_rate": 1e-3}),
    }


def resumable(method):
    """The weights; which samples are stored depends on the planned epochs."""
    return {name: value for name, value in weights(method).items() if name not in {"stored", "count"}}


def begin():
    results = {}
    for name, (make, settings) in methods().items():
        plan = {"epochs": 2, "batch_size": BATCH, "learning_rate": 0.02, "progress": False} | settings
        method = make()
        method.fit(data(), run=run_folder() / name, distributed="sharded", **plan)
        results |= {f"{name}/{key}": value for key, value in resumable(method).items()}
    return results


def go_on():
    results = {}
    for name, (make, _) in methods().items():
        method = make()
        method.resume(data(), run_folder() / name, extend=2, progress=False)
        results |= {f"{name}/{key}": value for key, value in resumable(method).items()}
    return results


def undisturbed():
    results = {}
    for name, (make, settings) in methods().items():
        plan = {"epochs": 6, "batch_size": BATCH, "learning_rate": 0.02, "progress": False} | settings
        method = make()
        method.fit(data(), **plan)
        results |= {f"{name}/{key}": value for key, value in resumable(method).items()}
    return results


# What is refused.


def refused_full_rank():
    return sharded(variational(family="full_rank"))


def refused_scales():
    return sharded(bf.Variational(perceptron(), "categorical", prior="normal:half-cauchy(1)"))


def refused_method():
    return bf.HMC(perceptron(), "categorical").fit(data(), warm_up=20, samples=2, distributed="sharded", progress=False)


def refused_scales_of_chains():
    return sharded(bf.SGLD(perceptron(), "categorical", prior="normal:half-cauchy(1)", chains=2, samples=4))


def refused_found_step():
    return sharded(bf.SGLD(perceptron(), "categorical", chains=2, samples=4), learning_rate=None)


def refused_curvature():
    return sharded(bf.LaplaceApproximation(perceptron(), "categorical"))


def refused_rates():
    return sharded(variational(), rates={"0": 0.1})


def refused_recompute():
    return sharded(variational(), recompute=["0"])


def refused_optimizer():
    return sharded(variational(), optimizer="adafactor")
