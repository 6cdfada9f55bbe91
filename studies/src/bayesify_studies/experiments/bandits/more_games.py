"""Games to decide whether an agent with a posterior is below logistic greedy, which 20 new games had left open.

Their number, their seeds and the test were settled before the first was played: 60 games, none added to them later, and
two differences, tested together by Holm's method. The other greedy agents do not play again: `new_games` has decided
about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, p_value, paired, settled_by_holm, written
from bayesify_studies.experiments.bandits import parts
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work

GREEDY, TESTED = "logistic greedy", ("logistic ucb", "logistic thompson")


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """The two agents less logistic greedy, game by game."""
    plan = work["more_games"]
    seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
    regret = {
        agent: estimate([found[parts.part_name("mushroom", agent, seed)]["regret"] for seed in seeds])
        for agent in parts.TIED_AGENTS
    }
    less = {agent: paired(regret[agent]["values"], regret[GREEDY]["values"]) for agent in TESTED}
    signs = dict(zip(TESTED, settled_by_holm(list(less.values())), strict=True))
    words = {-1: "significantly below", 0: "not significantly below", 1: "significantly above"}
    return Added(
        numbers={"mushroom": regret, "less": less, "signs": signs},
        lines=[
            Line(
                f"mushroom, {agent}, {len(seeds)} more games: cumulative regret",
                "none",
                written(regret[agent], ",.0f"),
                f"{words[signs[agent]]} {GREEDY} ({between(less[agent], '+,.0f')}), tested together with the other "
                "agent by Holm's method",
            )
            for agent in TESTED
        ],
        tables=[_table(regret, less, signs, seeds)],
        shortfalls=[
            f"{len(seeds)} more games: {agent} is {words[sign]} {GREEDY} ({between(less[agent], '+,.0f')} of the "
            "difference)."
            for agent, sign in signs.items()
            if sign != -1
        ],
    )


def _table(regret: Mapping[str, Any], less: Mapping[str, Any], signs: Mapping[str, int], seeds: range) -> Table:
    rows = []
    for agent, one in regret.items():
        row = [agent, written(one, ",.0f"), f"{max(one['values']):,.0f}"]
        if agent in less:
            lower = sum(value < 0 for value in less[agent]["values"])
            verdict = {-1: "below", 0: "not significant", 1: "above"}[signs[agent]]
            row += [between(less[agent], "+,.0f"), f"{p_value(less[agent]):.2g}", verdict, f"{lower} of {len(seeds)}"]
        rows.append(row + [""] * (7 - len(row)))
    return Table(
        "Mushroom bandit, more games",
        ["agent", "regret", "worst game", f"minus {GREEDY}", "p value", "by Holm's method", "games below it"],
        rows,
        f"{len(seeds)} games with seeds from {seeds[0]} on. The number of games, the settings and the test were fixed "
        "before the first of them was played.",
    )


MORE_GAMES = Addition("more_games", lambda work: parts.more(work.settings), tell)
