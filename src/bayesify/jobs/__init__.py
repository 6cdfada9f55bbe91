"""Many independent parts of a piece of work: in this process, in several processes, or on a Ray cluster.

    parts = [Part(out / name, train_one, (name,), done="scores.json") for name in names]
    run_parts(parts, make_engine("ray", address="auto"), shared=(data,))

A part fills a folder. What is finished is never done again, so the same call goes on after an interruption.
"""

from bayesify.jobs.engine import ENGINES, make_engine, read_share
from bayesify.jobs.parts import Engine, Part, UnfinishedError, run_parts

__all__ = ["ENGINES", "Engine", "Part", "UnfinishedError", "make_engine", "read_share", "run_parts"]
