"""Print what a Bayesian training step costs against a plain one: `python studies/scripts/step.py`."""

from bayesify_studies.benchmarks.step import measure

for prior in ("normal:1", "scale-mixture:0.75,1,0.000335"):
    result = measure(prior=prior)
    low, high = result["ratio_quartiles"]
    print(
        f"{prior}: plain {result['plain_ms']:.2f} ms, variational {result['variational_ms']:.2f} ms, "
        f"ratio {result['ratio']:.2f} (quartiles {low:.2f} to {high:.2f}), {result['path']} path, "
        f"{result['threads']} threads"
    )
