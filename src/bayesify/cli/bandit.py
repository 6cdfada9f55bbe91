"""`bayesify bandit`: agents that act while they learn, compared by their regret."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bayesify.cli.options import Json, complete_data, split_commas
from bayesify.cli.output import emit
from bayesify.errors import counted
from bayesify.files import plain


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify bandit wheel --steps 2000 --seeds 5\n\n"
        "bayesify bandit mushroom --agents logistic-thompson,logistic-greedy --seeds 3 --steps 5000\n\n"
        "bayesify bandit mine.csv --target offer --agents linear-thompson,variational-thompson,linear-greedy"
    )(bandit)


def bandit(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM",
            help="mushroom, wheel, linear, quadratic; or labelled data, whose classes are the actions: the right class "
            "gives a reward of 1, any other 0.",
            autocompletion=complete_data,
        ),
    ],
    agents: Annotated[
        list[str] | None,
        typer.Option(
            help="A model and a rule each, as linear-thompson: logistic, linear, neural-linear or a method; thompson, "
            "ucb, greedy or greedy-5% (5% at random). (default: linear-thompson,linear-ucb,linear-greedy)"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Decisions in a game.")] = 2000,
    seeds: Annotated[int, typer.Option(help="Games of each agent; all agents meet the same contexts and luck.")] = 5,
    target: Annotated[str | None, typer.Option(help="The column of a table that holds the classes.")] = None,
    first_by_chance: Annotated[
        int | None,
        typer.Option(
            help="Random actions at the start, the same for all agents. (default: 32 if a logistic agent plays, else 0)"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    as_json: Json = False,
) -> None:
    """Let agents choose actions and see only the reward of the chosen one; print the regret of each agent.

    Regret is the expected reward of the best action minus the reward that was received, summed over a game. The
    intervals are of the difference to the first agent, game by game.
    """
    from bayesify.workflows.bandit_games import DEFAULT_AGENTS, compare_agents

    named = split_commas(agents) or list(DEFAULT_AGENTS)
    games = range(seed, seed + max(seeds, 0))
    found = compare_agents(problem, named, games, steps=steps, target=target, first_by_chance=first_by_chance)
    if as_json:
        emit(plain(found))
        return
    played = f"{counted(steps, 'decision')}, {counted(seeds, 'game')}"
    print(f"{problem}: {played}, a random action costs {found['random_step']:.3g} a step")
    for name, one in found["agents"].items():
        print(f"{name:<24} {_said(one, named[0])}")


def _said(one: dict[str, Any], first: str) -> str:
    regret = one["regret"]
    error = f" ± {regret['standard_error']:,.1f}" if "standard_error" in regret else ""
    told = f"regret {regret['mean']:,.1f}{error}"
    if "interval" not in (one["less_first"] or {}):  # the first agent, or a single game
        return told
    low, high = one["less_first"]["interval"]
    return f"{told}, less {first}: 95% interval {low:+,.1f} to {high:+,.1f}"
