"""What a user's code may do while a method trains: callbacks, called at fixed points of the training loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesify.training.plan import History, Plan
    from bayesify.training.trainable import Trainable

HOOKS = ("on_fit_start", "on_step_end", "on_epoch_end", "on_fit_end")


class StopTraining(Exception):  # noqa: N818 -- a request of the user's, not an error
    """Raise it in a callback to end training after the current epoch; the message becomes `history.stopped`.

    Examples:
        >>> class Enough(bf.callbacks.Callback):
        ...     def on_epoch_end(self, method, record):
        ...         if record["epoch"] == 2:
        ...             raise bf.callbacks.StopTraining("two epochs are enough")
        >>> method = bf.PointEstimate(net, "categorical")
        >>> history = method.fit((x, y), epochs=10, callbacks=[Enough()], progress=False)
        >>> len(history), history.stopped
        (2, 'two epochs are enough')

    """


class Callback:
    """What `fit(callbacks=...)` calls; override what you need. Any object with one of these methods will do.

    A callback may read the method and must not change it: a resumed run would not repeat the change.

    Examples:
        >>> class Print(bf.callbacks.Callback):
        ...     def on_epoch_end(self, method, record):
        ...         print(record["epoch"], record["step"])
        >>> method = bf.PointEstimate(net, "categorical")
        >>> history = method.fit((x, y), epochs=2, callbacks=[Print()], progress=False)
        1 1
        2 2

    """

    def on_fit_start(self, method: Trainable, plan: Plan) -> None:
        """Before the first step, also when a run is resumed.

        Args:
            method: the method in training.
            plan: the settings of the training.

        """

    def on_step_end(self, method: Trainable, step: int) -> None:
        """After a step of the optimiser. Reading a weight here waits for a GPU, at every step.

        Args:
            method: the method in training.
            step: steps made so far.

        """

    def on_epoch_end(self, method: Trainable, record: dict[str, Any]) -> None:
        """After an epoch and its validation.

        Args:
            method: the method in training.
            record: what the history holds about the epoch: `epoch`, `step`, `loss`, `nll`, `kl`, `learning_rate`.

        """

    def on_fit_end(self, method: Trainable, history: History) -> None:
        """After the last step, also where training failed or was interrupted.

        Args:
            method: the method in training.
            history: what was recorded.

        """


class Callbacks:
    """Several callbacks as one.

    Args:
        given: objects with some of the methods of `Callback`.

    Raises:
        TypeError: an object has none of them.

    """

    def __init__(self, given: Sequence[Any]) -> None:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise TypeError(f"callbacks must be a list of callbacks, got {type(given).__name__}: write callbacks=[...]")
        for callback in given:
            if isinstance(callback, type):
                raise TypeError(
                    f"callbacks must be objects, got the class {callback.__name__}: write {callback.__name__}(...)"
                )
            if not any(callable(getattr(callback, hook, None)) for hook in HOOKS):
                raise TypeError(f"a callback needs one of {', '.join(HOOKS)}, {type(callback).__name__} has none")
        self._given = list(given)

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of every callback that has it."""
        for callback in self._given:
            function = getattr(callback, hook, None)
            if function is not None:
                function(*arguments)

    @property
    def each_step(self) -> bool:
        """Whether one of them is called after every step."""
        return any(self._has_step(callback) for callback in self._given)

    @staticmethod
    def _has_step(callback: Any) -> bool:
        function = getattr(callback, "on_step_end", None)
        return function is not None and getattr(function, "__func__", function) is not Callback.on_step_end
