"""Where regret is lost: by exploring or by the fit; and the game with the paper's memory and no shared random start.

At each step the act that the mean over many draws of the weights prefers is noted beside the act that was taken. Its
expected regret is what the fit loses: no agent that trusts this posterior could do better at this step. What the act
taken loses beyond it is the price of exploring, and is negative where a draw happened to be right and the mean was not.

    expected regret = fit + exploration,    fit = regret of argmax_act E[reward | act, data]

A step's exploration also pays in what is learned, so a low price does not say that exploring is useless.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from bayesify.decisions import Mushrooms
from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_f import mushroom_games
from bayesify_studies.experiments.study_f.mushroom_games import played, player, scores

NAME = "where_lost"
WAYS = {"page": "as on this page", "paper": "as in the paper"}
TITLES = {"variational": "Thompson sampling", "greedy": "greedy"}
# Draws that are averaged for the act that the posterior prefers.
DRAWS = 30
# They are new at each of the first decisions, and later at one in so many: the posterior hardly moves between them.
FRESH, RENEWED = 1000, 20
LATE = 1_000_000
# Expected regret of a wrong act: eating a poisonous mushroom (-35 or +5 at even odds) or passing an edible one.
EATEN, PASSED = 15.0, 5.0
KEYS = ("regret", "by_chance", "fit", "exploration", "poisonous_eaten", "edible_passed")
PAPER = {"memory": 4096, "first_by_chance": 0}


class Watched(Mushrooms):
    """The bandit, which before every decision asks a method which act it prefers on average."""

    method: Any = None

    def inputs(self, context: Tensor) -> Tensor:
        """The inputs of a decision; the preferred act is noted."""
        shown = super().inputs(context)
        if self.method is None:
            return shown
        now = len(self.preferred)
        with torch.no_grad():
            if now < FRESH or now % RENEWED == 0:
                # Decisions this late are not in the game, so the agent has other draws.
                self.theta = self.method.weights(range(DRAWS), (LATE + now) << 32)
            rewards = self.method.network.outputs(self.theta, shown)[0].mean(0).reshape(len(shown), -1)[:, 0]
        self.preferred.append(int(rewards.argmax()))
        return shown

    def watch(self, method: Any) -> None:
        """Ask this method from now on."""
        self.method, self.preferred = method, list[int]()


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A game for each way, agent and seed."""
    asked = work[NAME]
    first = work["first_seed"]
    return {
        f"lost-{way}-{agent}-{seed}": (lost, agent, seed, work.settings | asked["settings"][agent] | own)
        for seed in range(first, first + asked["seeds"])
        for way, own in (("page", {}), ("paper", PAPER))
        for agent in asked["settings"]
        if way == "paper" or agent == "variational"
    }


def lost(agent: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A game's regret, and what fit and exploration lose of the expected one after the random start."""
    x, poisonous = mushroom_games.mushrooms()
    bandit = Watched(x, poisonous, settings["steps"], seed, settings["shown"])
    method = player(agent, x.shape[1] + 2, seed, settings)
    if agent == "variational":
        bandit.watch(method)
    done = played(method, bandit, agent, seed, settings)
    # The first call only shows the shape of the inputs. A greedy agent takes the act that it prefers.
    preferred = torch.tensor(bandit.preferred[1:]) if bandit.method else done.acts
    start = settings["first_by_chance"]
    bad = torch.tensor(bandit.poisonous)

    def expected(acts: Tensor) -> Tensor:
        return torch.where(bad, EATEN * (acts == 1), PASSED * (acts == 0)).double()

    taken, fit = expected(done.acts), expected(preferred)
    return scores(done) | {
        "expected": float(taken.sum()),
        "by_chance": float(taken[:start].sum()),
        "fit": float(fit[start:].sum()),
        "exploration": float((taken - fit)[start:].sum()),
    }


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """Fit and exploration of each kind of game, and the paper's memory and start beside the page's own."""
    rows: list[list[str]] = []
    kept: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name.rpartition("-")[0] for name in parts(work)):
        own = {int(part.rpartition("-")[2]): one for part, one in found.items() if part.rpartition("-")[0] == name}
        if not own:
            continue
        way, agent = name.split("-")[1:]
        told = {key: estimate([one[key] for one in own.values()]) for key in KEYS}
        share = estimate([one["exploration"] / one["expected"] for one in own.values()])
        rows.append([f"{TITLES[agent]}, {WAYS[way]}", str(len(own)), *(written(told[key], ",.0f") for key in KEYS)])
        kept[f"{way} {agent}"] = told | {"share": share, "seeds": list(own)}
    page = kept.get("page variational")
    lines, differences = [], {}
    if page:
        lines.append(
            Line(
                f"Thompson sampling: what of the expected regret is the fit's, and what its draws add ({_games(page)})",
                "not measured",
                f"{written(page['fit'], ',.0f')} and {written(page['exploration'], ',.0f')}",
                f"exploration costs {percent(page['share'], 0)} of the expected regret",
            )
        )
    for title, other in (
        ("Thompson sampling: the paper's memory and start, minus those of this page", "page variational"),
        ("with the paper's memory and start: Thompson sampling minus greedy", "paper greedy"),
    ):
        first, second = kept.get("paper variational"), kept.get(other)
        if first is None or second is None:
            continue
        both = [seed for seed in first["seeds"] if seed in second["seeds"]]
        if not both:
            continue
        values = [[of["regret"]["values"][of["seeds"].index(seed)] for seed in both] for of in (first, second)]
        less = differences[title] = paired(*values)
        said = {1: "the regret is higher", -1: "the regret is lower", 0: "not significantly different"}[settled(less)]
        lines.append(
            Line(
                f"regret after {work['steps']:,} steps, {title}",
                "not done",
                " and ".join(f"{fmean(one):,.0f}" for one in values),
                f"{said} ({between(less, '+,.0f')})" if len(both) > 1 else "one game each: nothing can be concluded",
            )
        )
    planned = len(parts(work))
    short = [f"{len(found)} of {planned} games that split the regret were played."] if len(found) < planned else []
    return Added(
        {"ways": kept, "less": differences},
        lines=lines,
        shortfalls=short,
        tables=[
            Table(
                "Fit or exploration",
                [
                    "agent",
                    "games",
                    "regret",
                    "random start",
                    "fit",
                    "exploration",
                    "poisonous mushrooms eaten",
                    "edible mushrooms passed",
                ],
                rows,
                f"Games of {work['steps']:,} steps with the first seeds of the games above and the same settings. "
                "Random start, fit and exploration add up to the expected regret, which leaves out the luck of each "
                f"meal. Fit is the expected regret of the act with the highest mean reward over {DRAWS} draws of the "
                "weights; exploration is the rest. As in the paper: a memory of 4,096 interactions and no shared "
                "random start. What an act teaches is not in this table: without exploration, the fit would be another "
                "one.",
            )
        ],
    )


def _games(own: Mapping[str, Any]) -> str:
    return f"{len(own['seeds'])} game{'s' if len(own['seeds']) > 1 else ''}"


ADDITION = Addition(NAME, parts, tell, whole=False)
