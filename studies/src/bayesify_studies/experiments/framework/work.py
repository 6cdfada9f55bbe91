"""What an experiment works with: its settings, its device, and a folder in which everything costly is kept."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bayesify import files, runs
from bayesify.errors import at_least
from bayesify.jobs import Engine, Part, UnfinishedError, make_engine, run_parts
from bayesify.methods import saving
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify_studies.experiments.framework.code_state import digest
from bayesify_studies.experiments.framework.provenance import commit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesify.methods import Method
    from bayesify.methods.variational.variational import Variational
    from bayesify.workflows.prepare import PreparedData
    from bayesify.workflows.recipe import Recipe

# The file that says which experiment a folder holds.
QUESTION = "experiment.json"
# The state of code that changed between the parts of a result.
SEVERAL = "several"


class Cost(NamedTuple):
    """Seconds of parts together, their machines, the commits and states of their code, and the days."""

    seconds: float
    machines: list[str]
    commits: list[str]
    dates: list[str]
    code: dict[str, str | None]


class Work:
    """Runs the parts of an experiment once each, and remembers them by name."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        device: str = "cpu",
        engine: Engine | None = None,
        progress: bool = True,
    ) -> None:
        self.folder, self.settings = folder, dict(settings)
        self.device, self.engine, self.progress = device, engine or make_engine(), progress

    def __getitem__(self, name: str) -> Any:
        """A setting of the preset."""
        return self.settings[name]

    @property
    def jobs(self) -> int:
        """Processes at once on this machine."""
        return int(getattr(self.engine, "jobs", 1))

    def on_processor(self) -> Work:
        """The same work without its accelerator, for networks so small that one would wait for Python."""
        return Work(self.folder, self.settings, device="cpu", engine=self.engine, progress=self.progress)

    @property
    def seeds(self) -> range:
        """The seeds of the preset: `seeds` of them, from `first_seed` on where earlier ones were used to choose."""
        first = int(self.settings.get("first_seed", 0))
        return range(first, first + at_least("seeds", int(self.settings["seeds"]), 1))

    @property
    def precision(self) -> str:
        """Of a fleet's products: those of a GPU are several times faster in TF32 precision."""
        return "tf32" if self.device.startswith("cuda") else "float32"

    def once(self, name: str, compute: Callable[..., Mapping[str, Any]], *arguments: Any) -> dict[str, Any]:
        """A part's plain numbers: `compute(*arguments)` the first time, read from the part's file afterwards.

        What it took, and where, is written beside them; what was computed elsewhere says that of itself.
        """
        file = self._file(name)
        if not file.is_file():
            began = time.perf_counter()
            found = json.loads(json.dumps(dict(compute(*arguments)), allow_nan=False))
            file.parent.mkdir(parents=True, exist_ok=True)
            spent = {
                "seconds": time.perf_counter() - began,
                "machine": machine(self.device),
                "commit": commit(),
                "date": datetime.now(UTC).date().isoformat(),
                "code": {compute.__module__: digest(compute.__module__)},
            }
            files.write_json(file, spent | found)
        return self._read(file)

    def has(self, name: str) -> bool:
        """Whether a part is done."""
        return self._file(name).is_file()

    def every(self, parts: Mapping[str, tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
        """Many parts, each `(compute, *arguments)`, in order or where the engine runs them.

        In another process `compute` is a function of a module, and its arguments are what can be sent there (a `Work`
        can). Parts that are left to other jobs of an array end the experiment for now.
        """
        if not self.engine.inside or self.engine.share != (1, 1):
            home = self.folder.resolve()
            asked = [
                Part(home, _elsewhere, (home, name, part, self.device), str(self._file(name).relative_to(self.folder)))
                for name, part in parts.items()
            ]
            missing = run_parts(asked, self.engine, progress=self.progress)
            if missing:
                raise UnfinishedError(len(missing), len(asked))
        return {name: self.once(name, *part) for name, part in parts.items()}

    def trained(self, name: str, recipe: Recipe, prepared: PreparedData, **settings: Any) -> Method:
        """A method trained by a recipe in a run folder of its own, or what an interruption left of it finished.

        `settings` are of `fit`, over those of the recipe.
        """
        recipe = replace(with_defaults(recipe, prepared), device=self.device)
        examples = len(prepared.train[0])
        return self.fitted(
            name,
            lambda: make_method(recipe, prepared),
            prepared.train,
            validation=prepared.validation if recipe.validation else None,
            **fit_settings(recipe, examples) | settings,
        )

    def fitted(
        self, name: str, make: Callable[[], Method], data: Any, *, network: Any = None, **settings: Any
    ) -> Method:
        """The method that `make` makes, fitted to data in a run folder of its own, or the rest of an earlier fit.

        `network` is needed to read it again where the network is none of ours.
        """
        run = self.folder / "runs" / name
        settings = {"device": self.device, "progress": self.progress, **settings}
        if (run / runs.CONFIG).is_file() and (run / runs.MODEL).is_file():
            method = saving.load(run, network=network).to(settings["device"])
            if not method.complete:
                kept = {key: settings[key] for key in ("validation", "device", "progress") if key in settings}
                method.resume(data, run, **kept)
            return method
        method = make()
        method.fit(data, run=run, overwrite=True, **settings)
        return method

    def fleet(
        self, name: str, make: Callable[[], Sequence[Variational]], data: Any, **settings: Any
    ) -> list[Variational]:
        """Variational networks trained at once; each is kept, and a stopped fleet goes on after a whole epoch."""
        from bayesify.fleets import Fleet

        home = self.folder / "runs" / name
        methods = list(make())
        homes = [home / str(number) for number in range(len(methods))]
        if all((one / runs.MODEL).is_file() for one in homes):
            loaded: list[Any] = [saving.load(one).to(self.device) for one in homes]
            return loaded
        Fleet(methods).fit(
            data, device=self.device, precision=self.precision, progress=self.progress, run=home, **settings
        )
        for method, one in zip(methods, homes, strict=True):
            method.save(one)
        (home / "fleet.safetensors").unlink(missing_ok=True)
        return methods

    def figure(self, name: str, picture: Figure | Axes) -> str:
        """A figure drawn to a file under `figures` (SVG, or PNG where that is smaller); its name."""
        from bayesify.report.figures import draw, figure_of

        drawn = draw(figure_of(picture))
        file = self.folder / "figures" / f"{name}.{drawn.kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(drawn.content)
        return file.name

    def cost(self, names: Iterable[str] | None = None) -> Cost:
        """What all parts, or those named, took, where, when and by which code; old parts name no commit."""
        every = sorted((self.folder / "parts").glob("*.json")) if names is None else map(self._file, sorted(names))
        parts = [self._read(file) for file in every]
        dates, commits, machines = (
            sorted({part[name] for part in parts if part.get(name)}) for name in ("date", "commit", "machine")
        )
        code: dict[str, str | None] = {}
        for part in parts:
            for module, state in part.get("code", {}).items():
                # Parts of several states have none that could be that of today's code.
                code[module] = state if code.get(module, state) == state else SEVERAL
        return Cost(sum(part["seconds"] for part in parts), machines, commits, dates, code)

    def _file(self, name: str) -> Path:
        return self.folder / "parts" / f"{name}.json"

    @staticmethod
    def _read(file: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found


def machine(device: str) -> str:
    """What computes, in words."""
    accelerator = f"{torch.cuda.get_device_name(device)}, " if device.startswith("cuda") else ""
    threads = torch.get_num_threads()
    processor = f"{platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"
    return f"{accelerator}{processor}, torch {torch.__version__}"


def on_accelerator(words: str) -> bool:
    """Whether `machine`, or whoever knows no more than its name, said this of an accelerator."""
    return re.match(r"([^,]+, )?\d+ (CPU )?thread", words) is None


def _elsewhere(folder: Path, home: Path, name: str, part: tuple[Any, ...], device: str) -> None:
    """A part in another process: in the folder of the experiment where it is seen from there, otherwise in `folder`."""
    where = home if (home / QUESTION).is_file() else folder
    compute, *arguments = part
    # Everything costly that a part does goes through its `Work`, which writes where the part does.
    at_home = [_moved(argument, where) if isinstance(argument, Work) else argument for argument in arguments]
    Work(where, {}, device=device, progress=False).once(name, compute, *at_home)


def _moved(work: Work, where: Path) -> Work:
    return Work(where, work.settings, device=work.device, progress=False)
