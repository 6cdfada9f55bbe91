"""Where regret is lost: by exploring or by the fit; and the game with the paper's memory and no shared random start.

At each step the act that the mean over many draws of the weights prefers is noted beside the act that was taken. Its
expected regret is what the fit loses: no agent that trusts this posterior could do better at this step. What the act
taken loses beyond it is the price of exploring, and is negative where a draw happened to be right and the mean was not.

    expected regret = fit + exploration,    fit = regret of argmax_act E[reward | act, data]

A step's exploration also pays in what is learned, so a low price does not say that exploring is useless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
        "ate_in_last_tenth": int(done.acts[-max(1, len(taken) // 10) :].sum()),
    }


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """Fit and exploration of each kind of game, and the paper's memory and start beside the page's own."""
    keys = ("regret", "by_chance", "fit", "exploration", "poisonous_eaten", "edible_passed")
    rows, kept = [], {}
    every: dict[str, int] = Counter(name.rpartition("-")[2] for name in parts(work))
    there: dict[str, int] = Counter(name.rpartition("-")[2] for name in found)
    # A seed counts when all of its games are played, so that all rows have the same.
    seeds = [seed for seed, count in every.items() if there[seed] == count]
    if not seeds:
        return Added({})
    for way, words in WAYS.items():
        for agent, title in TITLES.items():
            if way == "page" and agent != "variational":
                continue
            own = [found[f"lost-{way}-{agent}-{seed}"] for seed in seeds]
            told = {key: estimate([one[key] for one in own]) for key in keys}
            share = estimate([one["exploration"] / one["expected"] for one in own])
            stopped = sum(one["ate_in_last_tenth"] == 0 for one in own)
            rows.append([f"{title}, {words}", *(written(told[key], ",.0f") for key in keys), str(stopped)])
            kept[f"{way} {agent}"] = told | {"share": share, "stopped": stopped}
    games, steps = len(seeds), work["steps"]
    own, paper, greedy = (kept[name] for name in ("page variational", "paper variational", "paper greedy"))
    lines, differences = [], {}
    word = {1: "exploration loses something", -1: "draws lose less than the mean would", 0: "no significant cost"}
    if games > 1:
        lines.append(
            Line(
                "Thompson sampling: expected regret of the acts that the mean of the posterior prefers, and what its "
                "draws lose beyond them",
                "not measured",
                f"{written(own['fit'], ',.0f')} and {written(own['exploration'], ',.0f')}",
                f"{percent(own['share'], 0)} of the expected regret is the price of exploring; "
                f"{word[settled(own['exploration'])]} ({between(own['exploration'], '+,.0f')})",
            )
        )
    for title, one, other in (
        ("the paper's memory and start, minus those of this page: Thompson sampling", paper, own),
        ("with the paper's memory and start: Thompson sampling minus greedy", paper, greedy),
    ):
        if games < 2:
            continue
        less = differences[title] = paired(one["regret"]["values"], other["regret"]["values"])
        said = {1: "higher", -1: "lower", 0: "not significantly different"}[settled(less)]
        lines.append(
            Line(
                f"regret after {steps:,} steps, {title}",
                "not done",
                f"{one['regret']['mean']:,.0f} and {other['regret']['mean']:,.0f}",
                f"the regret is {said} ({between(less, '+,.0f')})",
            )
        )
    return Added(
        {"seeds": list(map(int, seeds)), "ways": kept, "less": differences},
        lines=lines,
        tables=[
            Table(
                "Fit or exploration",
                [
                    "agent",
                    "regret",
                    "random start",
                    "fit",
                    "exploration",
                    "poisonous mushrooms eaten",
                    "edible mushrooms passed",
                    "games without a meal in the last tenth",
                ],
                rows,
                f"{games} games of {steps:,} steps each, the first seeds of the games above, same settings. Random "
                "start, fit and exploration add up to the expected regret, which leaves out the luck of each meal. Fit "
                f"is the expected regret of the act with the highest mean reward over {DRAWS} draws of the weights; "
                "exploration is the rest. As in the paper: a memory of 4,096 interactions and no shared random start.",
            )
        ],
    )


ADDITION = Addition(NAME, parts, tell, whole=False)
