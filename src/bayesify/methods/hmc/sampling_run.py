"""A sampling run: a plan followed in blocks of iterations, with a history, checkpoints and a check for divergence.

The state of a run is the positions of the chains, the result of warm-up so far, and the draws so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import files
from bayesify.distributed import active
from bayesify.errors import TrainingError
from bayesify.methods.hmc.hamiltonian import TrajectoryStoppedError, state_at
from bayesify.methods.hmc.sampler import Iteration, Sampler
from bayesify.runs import STATE, tensor_files
from bayesify.training import data_identity
from bayesify.training.interrupts import deferred_interrupts, stop_function
from bayesify.training.plan import History
from bayesify.training.progress_bar import progress_bar

if TYPE_CHECKING:
    from bayesify.methods.hmc.hmc import HMC
    from bayesify.methods.hmc.log_joint import LogJoint
    from bayesify.methods.hmc.plan import Sampling
    from bayesify.training.batches import Examples


@dataclass
class Progress:
    """The iteration that a run has reached, and the sums over the current block; stored in checkpoints."""

    step: int = 0
    done: bool = False
    acceptance: float = 0.0
    divergences: int = 0
    leapfrogs: int = 0
    seconds: float = 0.0
    since: int = field(default=0)


class SamplingRun:
    """Follows a sampling plan with the chains of a method.

    Args:
        method: whose chains move.
        target: the log density.
        plan: how many iterations, and how.
        examples: the data, for its size and identity.
        run: the folder for checkpoints, or None.
        show: show a progress bar.

    """

    def __init__(
        self, method: HMC, target: LogJoint, plan: Sampling, examples: Examples, *, run: Path | None, show: bool
    ) -> None:
        self.method, self.target, self.plan, self.n_data = method, target, plan, examples.n_data
        self.data = None if run is None else data_identity.mark(examples)
        self.group = active()
        first = self.group is None or self.group.first
        self.folder, self.show = run if first else None, show and first
        self.progress, self.history = Progress(), History(method=method.name)
        _, variance = target.starts(plan.seed, method.chains)
        self.workers = 1 if self.group is not None else _workers(target, method.chains)
        with _threads_of_each(self.workers):
            self.sampler = Sampler(
                target,
                method.position,
                variance=variance,
                shrinks=target.shrinks,
                warm_up=plan.warm_up,
                seed=plan.seed,
                target_accept=plan.target_accept,
                longest=plan.max_leapfrogs,
                fast=bool(plan.compiled) and self.group is None,
                workers=self.workers,
            )
        self._written = 0.0
        self._cost = 0.0

    @torch.no_grad()
    def carry_out(self) -> History:
        """Sample from the current iteration to the end of the plan."""
        plan, progress = self.plan, self.progress
        self._check_start()
        bar = progress_bar(total=plan.iterations, initial=progress.step, unit="iteration", show=self.show)
        with bar, _threads_of_each(self.workers), deferred_interrupts() as arrived:
            interrupted = self._agreed(arrived)
            # Nothing changes before the end of a trajectory: one that is given up can be followed again.
            if self.group is None:
                self.sampler.leapfrog.stopped = stop_function()
            if progress.step == 0:
                with suppress(TrajectoryStoppedError):
                    self.sampler.find_step_size()
            good = self._kept()
            while progress.step < plan.iterations:
                began = time.perf_counter()
                last = min((progress.step // plan.block + 1) * plan.block, plan.iterations)
                while progress.step < last and not interrupted():
                    with suppress(TrajectoryStoppedError):
                        self._iterate()
                        bar.update()
                progress.seconds += time.perf_counter() - began
                self.method.position.copy_(self.sampler.state.position)
                self._check_block(good)
                if progress.step == last:
                    self._close_block(bar)
                    good = self._kept()
                if interrupted() and progress.step < plan.iterations:
                    self.save_checkpoint()
                    raise KeyboardInterrupt
        progress.done = True
        self.method.settle(self.sampler.adaptation)
        self.save_checkpoint()
        return self.history

    def _agreed(self, arrived: Callable[[], bool]) -> Callable[[], bool]:
        """Whether to stop: an interrupt has arrived, in any of several processes."""
        group = self.group
        return arrived if group is None else lambda: group.any(arrived())

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Load a checkpoint."""
        model = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
        self.method.restore(model)
        learned = {name.removeprefix("learned/"): t for name, t in tensors.items() if name.startswith("learned/")}
        self.sampler.adaptation.restore(learned, state["adaptation"])
        self.sampler.state = state_at(self.target, self.method.position.detach().clone())
        self.progress = Progress(**state["progress"])
        self.progress.done = False
        self.history = History(state["history"], state.get("stopped", ""), self.method.name)

    def save_checkpoint(self) -> None:
        """Write the state to the run's folder."""
        if self.folder is None:
            return
        began = time.perf_counter()
        learned, numbers = self.sampler.adaptation.state()
        tensors = {f"model/{name}": tensor for name, tensor in self.method.state_dict().items()}
        tensors |= {f"learned/{name}": tensor for name, tensor in learned.items()}
        state = {
            "plan": asdict(self.plan),
            "progress": asdict(self.progress),
            "adaptation": numbers,
            "history": self.history.records,
            "stopped": self.history.stopped,
            "data": self.data,
        }
        tensor_files.write(self.folder / STATE, tensors, state)
        files.write_text(self.folder / "history.jsonl", self.history.to_jsonl())
        self._written = time.perf_counter()
        self._cost = self._written - began

    def _iterate(self) -> None:
        plan, progress = self.plan, self.progress
        iteration: Iteration = self.sampler.iterate(progress.step)
        progress.step += 1
        progress.since += 1
        progress.acceptance += float(iteration.acceptance.mean())
        progress.divergences += int(iteration.diverging.sum())
        progress.leapfrogs += iteration.steps
        kept = progress.step - plan.warm_up
        if kept > 0:
            store, position = self.method.store, self.sampler.state.position
            store.note_divergences(iteration.diverging)
            if kept % plan.thin == 0:
                size = self.target.random
                weights = self.target.weights(position)[:, :size]
                store.keep(kept // plan.thin - 1, weights, position[:, size:], iteration)

    def _check_start(self) -> None:
        wrong = ~torch.isfinite(self.sampler.state.log_density)
        wrong |= ~torch.isfinite(self.sampler.state.gradient).all(-1)
        if bool(wrong.any()):
            chain = int(wrong.int().argmax())
            raise TrainingError(
                f"the log posterior of chain {chain} is not finite where it starts: scale the inputs and targets, or "
                f"choose a narrower prior (now {self.target.prior.spec()})"
            )

    def _check_block(self, good: dict[str, Any]) -> None:
        """Stop where sampling has diverged, and restore the last good state."""
        progress, state = self.progress, self.sampler.state
        lost = progress.divergences == progress.since * self.method.chains and progress.since >= 10
        if not lost and bool(torch.isfinite(state.log_density).all()):
            return
        step, at = self.sampler.adaptation.step_size(progress.step), progress.step
        self._go_back(good)
        self.save_checkpoint()
        reason = "every proposal of a block diverged" if lost else "the log posterior diverged"
        raise TrainingError(
            f"{reason} before iteration {at} (step size {step:.3g}): scale the data, choose a narrower prior or a "
            f"longer warm-up; the chains are left as they were after iteration {self.progress.step}"
        )

    def _close_block(self, bar: Any) -> None:
        plan, progress = self.plan, self.progress
        data, prior = self.target.parts(self.sampler.state.position)
        record: dict[str, Any] = {
            "epoch": -(-progress.step // plan.block),
            "step": progress.step,
            "phase": "warm-up" if progress.step <= plan.warm_up else "sampling",
            "loss": -float((data + prior).mean()) / self.n_data,
            "nll": -float(data.mean()) / self.n_data,
            "kl": 0.0 - float(prior.mean()),  # a flat prior has 0, not -0
            "potential": -float((data + prior).mean()),
            "acceptance": progress.acceptance / max(progress.since, 1),
            "divergences": progress.divergences,
            "leapfrogs": progress.leapfrogs,
            "step_size": self.sampler.adaptation.step_size(progress.step),
            "trajectory": self.sampler.adaptation.length.length,
            "seconds": progress.seconds,
        }
        self.history.records.append(record)
        bar.set_postfix({name: f"{record[name]:.3g}" for name in ("acceptance", "step_size", "divergences")})
        progress.acceptance, progress.seconds = 0.0, 0.0
        progress.divergences = progress.leapfrogs = progress.since = 0
        # Draws can be large: spend at most about a tenth of the time on writing them.
        if time.perf_counter() - self._written > 10 * self._cost:
            self.save_checkpoint()

    def _kept(self) -> dict[str, Any]:
        learned, numbers = self.sampler.adaptation.state()
        return {
            "position": self.sampler.state.position.clone(),
            "adaptation": ({name: tensor.clone() for name, tensor in learned.items()}, numbers),
            "progress": asdict(self.progress),
            "counts": self.method.store.counts.clone(),
        }

    def _go_back(self, good: dict[str, Any]) -> None:
        self.method.position.copy_(good["position"])
        self.sampler.state = state_at(self.target, good["position"])
        self.sampler.adaptation.restore(*good["adaptation"])
        self.progress = Progress(**good["progress"])
        self.method.store.counts.copy_(good["counts"])


def _workers(target: LogJoint, chains: int) -> int:
    """The number of threads: more than one where gradients run without Python; it divides the number of chains."""
    if any(perceptron is None for perceptron in target.perceptrons) or target.rest.is_cuda:
        return 1
    return max(groups for groups in range(1, min(chains, torch.get_num_threads()) + 1) if chains % groups == 0)


@contextmanager
def _threads_of_each(workers: int) -> Iterator[None]:
    """Divide torch's threads among the workers inside the block."""
    before = torch.get_num_threads()
    if workers > 1:
        torch.set_num_threads(max(1, before // workers))
    try:
        yield
    finally:
        if workers > 1:
            torch.set_num_threads(before)
