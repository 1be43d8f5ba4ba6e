"""The Dither SDK: answers are randomised on the device before anything leaves it.

Names are loaded when they are first used: importing this package costs an app next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither_client.client import Client
    from dither_client.results import FlushResult, RecordResult, RecordStatus
    from dither_client.sampling import randomize

_HOME_OF = {
    "Client": "dither_client.client",
    "FlushResult": "dither_client.results",
    "RecordResult": "dither_client.results",
    "RecordStatus": "dither_client.results",
    "randomize": "dither_client.sampling",
}

__all__ = ["Client", "FlushResult", "RecordResult", "RecordStatus", "randomize"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dither_client' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
