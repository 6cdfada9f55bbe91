"""A module run with other tensors in the place of its own: `torch.func.functional_call`, with the search done once.

Torch looks for tied tensors and for the owner of every tensor in each call, which takes about as long on the host as a
sixth of a step of a small transformer. Here both are found once for a module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class Swapping:
    """Runs one module with given tensors.

    Args:
        module: the module. Its parameters and buffers stay where they are; only their values are replaced in a call.

    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._owners: dict[str, list[tuple[dict[str, Any], str]]] = {}
        first: dict[int, str] = {}
        for path, submodule in module.named_modules(remove_duplicate=False):
            for owned in (submodule._parameters, submodule._buffers):
                for name, tensor in owned.items():
                    if tensor is not None:
                        whole = f"{path}.{name}" if path else name
                        # A tied tensor is replaced in all of its places.
                        places = self._owners.setdefault(first.setdefault(id(tensor), whole), [])
                        if not any(known is owned and key == name for known, key in places):
                            places.append((owned, name))
        self._owners |= {
            other: self._owners[name]
            for path, submodule in module.named_modules(remove_duplicate=False)
            for owned in (submodule._parameters, submodule._buffers)
            for key, tensor in owned.items()
            if tensor is not None and (other := f"{path}.{key}" if path else key) != (name := first[id(tensor)])
        }

    def call(self, tensors: dict[str, Tensor], positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Run the module.

        Args:
            tensors: replace the module's own, by name; where the module assigns another tensor, it is found here.
            positional: arguments.
            named: arguments by name.

        Returns:
            What the module returns.

        """
        with self.placed(tensors):
            try:
                return self._module(*positional, **named)
            finally:
                for name, given in list(tensors.items()):
                    owned, key = self._owners[name][0]
                    tensors[name] = owned.get(key, given)

    @contextmanager
    def placed(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside this context the module has given tensors.

        Args:
            tensors: replace the module's own, by name.

        """
        before = []
        try:
            for name, tensor in tensors.items():
                for owned, key in self._owners[name]:
                    before.append((owned, key, owned[key]))
                    owned[key] = tensor
            yield
        finally:
            for owned, key, own in reversed(before):
                owned[key] = own

    def now(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The tensors that the module has at the moment, by name."""
        found = {}
        for name in names:
            owned, key = self._owners[name][0]
            found[name] = owned[key]
        return found
