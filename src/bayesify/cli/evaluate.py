"""`bayesify evaluate`: the scores of a run on its test examples, on other data, and against unknown inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import By, Draws, Json, MaxError, OtherData, OwnNetwork, Run, Seed, Unknown, say_unprepared
from bayesify.cli.output import CommandError, emit, say, say_beginning
from bayesify.cli.recipe_flags import in_flags
from bayesify.files import plain
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from bayesify.evaluation import Evaluation
    from bayesify.methods import Method
    from bayesify.workflows.run_data import Examples

LOO_DRAWS = 2000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify evaluate runs/digits\n\n"
        "bayesify evaluate runs/mnist --ood fashion-mnist --draws 50 --json\n\n"
        "bayesify evaluate runs/mine --data later.csv\n\n"
        "bayesify evaluate runs/mnist --max-error 0.01\n\n"
        "bayesify evaluate runs/mine --loo"
    )(evaluate)


def evaluate(
    run: Run,
    data: OtherData = None,
    ood: Unknown = None,
    draws: Draws = DRAWS,
    by: By = "draws",
    seed: Seed = 0,
    max_error: MaxError = None,
    network: OwnNetwork = None,
    baselines: Annotated[
        bool,
        typer.Option(help="For tables: also score a constant, a linear model and gradient boosting."),
    ] = True,
    loo: Annotated[
        bool,
        typer.Option("--loo", help="Also leave-one-out cross-validation on the training data (needs the extra mcmc)."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Score a run and write the scores to its metrics.json.

    Accuracy, error and coverage are fractions. NLL is in nats per example. With unknown inputs, AUROC says how well
    uncertainty separates them from known ones.
    """
    say_beginning(f"scoring {run}")
    result, evaluation = score_run(run, data, ood, draws, by, seed, network, max_error, baselines=baselines, loo=loo)
    say_unprepared(run)
    if as_json:
        emit(result)
        return
    unknown = "" if result["ood"] is None else f", against {result['ood']}"
    print(f"{run} on {result['data']}{unknown}")
    print(evaluation)
    for line in _promises(result.get("promises") or {}):
        print(line)
    for line in _left_out(result.get("loo")):
        print(line)
    if "unknown_check" in result:
        print(_checked(result["unknown_check"]))
    from bayesify.evaluation.baselines import TITLES

    for model in result["baselines"]:
        scores = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in model.items() if name != "name")
        print(f"beside it, {TITLES[model['name']]}: {scores}")
    for notice in result["notices"]:
        print(f"note: {notice}")
    for alert in result["alerts"]:
        print(f"before you trust it: {alert}")


def score_run(
    run: Path,
    data: str | None,
    ood: str | None,
    draws: int,
    by: str,
    seed: int,
    network: str | None,
    max_error: float | None = None,
    *,
    baselines: bool = False,
    loo: bool = False,
) -> tuple[dict[str, Any], Evaluation]:
    """Score a run and write the scores to its `metrics.json`; examples that a guarantee was made from are left out."""
    from bayesify.decisions import saved_check
    from bayesify.evaluation import evaluate as score
    from bayesify.evaluation.baselines import TITLES, beaten_by, training_nll, worse_than_constant
    from bayesify.evaluation.imbalance import never_predicted
    from bayesify.methods.after_fit import low_elbo
    from bayesify.workflows import guarantees, run_data, train, unknown_check
    from bayesify.workflows.simple_models import simple_models

    method, everything = run_data.open_run(run, data, ood, network)
    examples = guarantees.unused_examples(method, everything)
    left_out = len(everything.y) - len(examples.y)
    if not len(examples.y):
        raise CommandError(f"every example of {everything.what} was used to calibrate {run}: give others with --data")
    evaluation = score(method, (examples.x, examples.y), ood=examples.unknown, draws=draws, seed=seed, by=by)
    models = simple_models(method, examples, run) if baselines else []
    alerts = [never_predicted(evaluation)]
    if models or _maybe_worse_than_constant(method, examples, evaluation):
        predictive = method.predict(examples.x, draws=draws, seed=seed, by=by)
        seen = training_nll(method)
        beaten = beaten_by(predictive, examples.y, models, seen)
        by_constant = beaten is not None and beaten.startswith(TITLES["constant"])
        alerts += [beaten, None if by_constant else worse_than_constant(predictive, examples.y, seen)]
    evaluation = evaluation.with_elbo(run_data.elbo_of(method, examples, draws, seed))
    about = {"method": method.name, "data": examples.what, "ood": examples.unknown_what, "by": by, "seed": seed}
    promises = guarantees.score_promises(method, examples, {"draws": draws, "seed": seed, "by": by}, max_error)
    low = low_elbo(method)
    notices = [*examples.notices, *([] if low is None else [low])]
    beside = {"baselines": [model.to_dict() for model in models], "notices": notices}
    beside["alerts"] = [in_flags(alert) for alert in alerts if alert is not None]
    beside |= {"promises": promises} if promises else {}
    if loo:
        beside["loo"] = _leave_one_out(method, examples, run, draws, seed)
    checked = unknown_check.score_check(saved_check(method), examples.x, examples.unknown)
    beside |= {"unknown_check": checked} if checked else {}
    metrics: dict[str, Any] = plain(about | evaluation.to_dict() | beside)
    train.write_metrics(run, metrics)
    if left_out:
        were, them = ("example is", "it") if left_out == 1 else ("examples are", "them")
        say(f"{left_out:,} {were} not scored, because the run was recalibrated or certified on {them}")
    return {"run": str(run)} | metrics, evaluation


def _maybe_worse_than_constant(method: Method, examples: Examples, evaluation: Evaluation) -> bool:
    """Whether the NLL is above that of the best constant, so that it is worth predicting once more."""
    from bayesify.likelihoods.constant import constant_log_prob

    truth = method.likelihood.prepare(examples.y)
    constant = constant_log_prob(method.likelihood, truth, truth)
    return constant is not None and evaluation.nll is not None and evaluation.nll > -float(constant.mean())


def _leave_one_out(method: Method, examples: Examples, run: Path, draws: int, seed: int) -> dict[str, Any]:
    """Leave-one-out cross-validation on the training data of a run."""
    from bayesify.evaluation.loo import loo

    if examples.training is None:
        raise CommandError(f"--loo needs the training data of {run}, which is not at hand: leave --data out")
    # The tail of the weights needs more draws than a prediction.
    result = loo(method, examples.training, draws=max(draws, LOO_DRAWS), seed=seed)
    return result.to_dict()


def _left_out(found: dict[str, Any] | None) -> Iterator[str]:
    """Leave-one-out cross-validation in words."""
    if found is not None:
        yield (
            f"leave-one-out on {found['examples']:,} training examples: elpd {found['elpd']:.2f} nats, standard error "
            f"{found['standard_error']:.2f}, {found['nll']:.4f} nats an example"
        )
        yield (
            f"effective number of weights {found['p_loo']:.1f}; Pareto k at most {found['largest_pareto_k']:.2f}, "
            f"above {found['trusted_up_to']:.2f} for {found['untrusted']} examples"
        )


def _checked(found: dict[str, Any]) -> str:
    """What the check for unknown inputs does on these examples, in words."""
    unknown = f", and {found['unknown_accepted']:.1%} of the unknown ones" if "unknown_accepted" in found else ""
    return f"the check for unknown inputs ({found['by']}) accepts {found['accepted']:.1%} of these{unknown}"


def _promises(scored: dict[str, Any]) -> Iterator[str]:
    """How each guarantee does on these examples, in words."""
    refusal, sets = scored.get("refusal"), scored.get("conformal")
    if refusal is not None:
        error = "-" if refusal["error"] is None else f"{refusal['error']:.4f}"
        yield (
            f"guaranteed: at most {refusal['max_error']:g} of the accepted predictions are wrong "
            f"({refusal['confidence']:.0%} confidence)"
        )
        wrong, accepted, coverage = (refusal[name] for name in ("wrong", "accepted", "coverage"))
        yield f"here: {wrong} of {accepted:,} are ({error}), at coverage {coverage:.3f}"
    if sets is not None:
        size = f"{sets['mean_size']:.2f} classes" if "mean_size" in sets else f"a width of {sets['mean_width']:.4g}"
        yield f"guaranteed: {sets['kind']} covers at least {sets['promised']:.1%} of the targets"
        yield f"here: it covers {sets['coverage']:.1%}, with {size} on average"
