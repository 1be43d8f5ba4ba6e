"""How full the memory of the store is, master by master. Through the store's clients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one master.

    Attributes:
        used_bytes: by its data and buffers.
        limit_bytes: ``maxmemory``; None where it has none.
        policy: ``maxmemory-policy``: what it does when it is full.
    """

    used_bytes: int
    limit_bytes: int | None
    policy: str

    @property
    def used_share(self) -> float | None:
        """Of the limit, where there is one."""
        return None if self.limit_bytes is None else self.used_bytes / self.limit_bytes


def read_memory(
    masters: Mapping[str, Any], shown: Callable[[Callable[[], Memory | None]], Memory | None]
) -> dict[str, Memory | None]:
    """The memory of each master by its name; None where that hides it.

    Args:
        masters: a client of each. What it raises is raised: of a store without a master the rest is not the whole.
        shown: gives what it is told to ask for, or None where the master hides it.
    """
    return {name: shown(partial(_memory, client)) for name, client in masters.items()}


def _memory(client: Any) -> Memory | None:
    """None where the master says less than all of this, as behind some proxies."""
    found = client.info("memory")
    try:
        return Memory(
            used_bytes=int(found["used_memory"]),
            limit_bytes=int(found["maxmemory"]) or None,
            policy=str(found["maxmemory_policy"]),
        )
    except (KeyError, ValueError):
        return None
