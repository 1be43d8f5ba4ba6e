"""Calls of the store, each master behind a circuit of its own: who does not answer is not asked by everybody."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from dither_server.circuit import Circuit
from dither_server.nodes import ALONE
from dither_server.store_rules import StoreUnavailable

_PAUSE_S: Final = 0.5
_SILENT: Final = ("timeout", "loading", "replicas", "cluster")
"""Kinds that a caller has to wait for."""


class Trials:
    """Stands around calls of the store, or of one master, and turns them away while it is known not to answer.

    Args:
        errors: around a call, turns the errors of the store's client into those of `store_rules`.
    """

    def __init__(self, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._errors = errors
        self._circuits: dict[str, Circuit] = {}

    def circuit(self, master: str) -> Circuit:
        """Of one master."""
        return self._circuits.setdefault(master, Circuit(_PAUSE_S))

    @contextmanager
    def __call__(self, master: str = ALONE) -> Iterator[None]:
        """Around one call."""
        circuit = self.circuit(master)
        fault = circuit.enter()
        if fault:
            raise StoreUnavailable(fault)
        try:
            with self._errors():
                yield
        except StoreUnavailable as error:
            fault = error.kind if error.kind in _SILENT else ""
            raise
        finally:
            circuit.leave(fault)
