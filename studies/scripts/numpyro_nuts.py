r"""The peer of `bayesify bench hmc`: NumPyro's NUTS on the same perceptron, data and prior, in its own environment.

    python studies/scripts/numpyro_nuts.py problem.npz result.npz --chains 4 --method vectorized \
        --warm-up 500 --samples 500

`problem.npz` holds x, y, the inputs to predict at, the widths of the layers and the prior's scale; `result.npz` gets
the class probabilities `[chains, samples, inputs, classes]` and the seconds of two runs: the first compiles, the
second, from another key, does not.
"""

import argparse
import itertools
import os
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("result")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--method", choices=("parallel", "vectorized", "sequential"), default="vectorized")
    parser.add_argument("--warm-up", type=int, default=500)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--target-accept", type=float, default=0.8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # XLA reads its flags when it is imported, so nothing of jax may come before this.
    devices = options.chains if options.method == "parallel" else 1
    flags = f"--xla_force_host_platform_device_count={devices}"
    if options.threads == 1:
        flags += " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = flags
    run(options)


def run(options: argparse.Namespace) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    from numpyro.distributions import Categorical, Normal
    from numpyro.infer import MCMC, NUTS

    problem = np.load(options.problem)
    x, y, inputs = (jnp.asarray(problem[name]) for name in ("x", "y", "inputs"))
    widths, scale = problem["widths"].tolist(), float(problem["scale"])
    shapes = {}
    for layer, (before, after) in enumerate(itertools.pairwise(widths)):
        shapes |= {f"weight{layer}": (before, after), f"bias{layer}": (after,)}
    last = len(widths) - 2

    def network(weights, x):
        for layer in range(last + 1):
            x = x @ weights[f"weight{layer}"] + weights[f"bias{layer}"]
            x = jnp.tanh(x) if layer < last else x
        return x

    def model(x, y):
        weights = {
            name: numpyro.sample(name, Normal(0.0, scale).expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }
        numpyro.sample("y", Categorical(logits=network(weights, x)), obs=y)

    sampler = MCMC(
        NUTS(model, target_accept_prob=options.target_accept),
        num_warmup=options.warm_up,
        num_samples=options.samples,
        num_chains=options.chains,
        chain_method=options.method,
        progress_bar=False,
    )
    seconds = []
    for attempt in range(2):
        began = time.perf_counter()
        sampler.run(jax.random.PRNGKey(2 * options.seed + attempt), x, y, extra_fields=("num_steps", "diverging"))
        draws = jax.block_until_ready(sampler.get_samples(group_by_chain=True))
        seconds.append(time.perf_counter() - began)
    extra = sampler.get_extra_fields(group_by_chain=True)
    probabilities = jax.vmap(jax.vmap(lambda weights: jax.nn.softmax(network(weights, inputs))))(draws)
    np.savez(
        options.result,
        probs=np.asarray(probabilities),
        seconds_with_compilation=seconds[0],
        seconds=seconds[1],
        leapfrogs=np.asarray(extra["num_steps"]).mean(),
        divergences=np.asarray(extra["diverging"]).sum(),
        version=numpyro.__version__,
    )


if __name__ == "__main__":
    main()
