"""Calls of the store, each master behind a circuit of its own: who does not answer is not asked by everybody."""

from collections.abc import Callable
from typing import Final

from dither_server.circuit import Circuit
from dither_server.nodes import ALONE
from dither_server.store_rules import StoreUnavailable

_PAUSE_S: Final = 0.5
_SILENT: Final = ("timeout", "loading", "replicas", "cluster")
"""Kinds that a caller has to wait for."""

Words = Callable[[BaseException], BaseException]
"""What an error of the store's client means by `store_rules`; the error itself where it means nothing there."""


class Guard:
    """Around calls of the store: raises what their errors mean. Classes, since a generator is dear on the hot path.

    Args:
        words: for the errors of the store's client.
        lose: told of a store that is unavailable.
    """

    __slots__ = ("_lose", "_words")

    def __init__(self, words: Words, lose: Callable[[StoreUnavailable], None]) -> None:
        self._words = words
        self._lose = lose

    def __enter__(self) -> None:
        """Nothing has to be prepared."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tell and raise, where there was an error."""
        if error is None:
            return
        found = self._words(error)
        if isinstance(found, StoreUnavailable):
            self._lose(found)
        if found is not error:
            raise found from None


class Trials:
    """Stands around calls of the store, or of one master, and turns them away while it is known not to answer.

    An object of its own: what refers to it must not refer to the store in a circle, which would keep connections open.

    Args:
        words: for the errors of the store's client.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        self._circuits: dict[str, Circuit] = {}

    def circuit(self, master: str) -> Circuit:
        """Of one master."""
        found = self._circuits.get(master)
        return found if found is not None else self._circuits.setdefault(master, Circuit(_PAUSE_S))

    def __call__(self, master: str = ALONE) -> "_Trial":
        """Around one call."""
        return _Trial(self.circuit(master), self._words)


class _Trial:
    __slots__ = ("_circuit", "_words")

    def __init__(self, circuit: Circuit, words: Words) -> None:
        self._circuit = circuit
        self._words = words

    def __enter__(self) -> None:
        fault = self._circuit.enter()
        if fault:
            raise StoreUnavailable(fault)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._circuit.leave()
            return
        found = self._words(error)
        fault = found.kind if isinstance(found, StoreUnavailable) else ""
        self._circuit.leave(fault if fault in _SILENT else "")
        if found is not error:
            raise found from None
