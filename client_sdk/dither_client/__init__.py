"""The Dither SDK: answers are randomised on the device before anything leaves it.

Names are loaded when they are first used: importing this package costs an app next to nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # `typing` alone would cost as much as all the rest of this import
if TYPE_CHECKING:
    from typing import Any

    from dither_client.client import Client
    from dither_client.default import flush, init, record, shutdown
    from dither_client.errors import BudgetExhaustedError, NotConsentedError, StateError, StrictError
    from dither_client.paths import default_state_dir
    from dither_client.results import FlushResult, Pending, RecordResult, RecordStatus
    from dither_client.sampling import randomize
    from dither_client.spending import MetricSpending, PrivacyLedger

_HOMES = {
    "dither_client.client": ("Client",),
    "dither_client.default": ("flush", "init", "record", "shutdown"),
    "dither_client.errors": ("BudgetExhaustedError", "NotConsentedError", "StateError", "StrictError"),
    "dither_client.paths": ("default_state_dir",),
    "dither_client.results": ("FlushResult", "Pending", "RecordResult", "RecordStatus"),
    "dither_client.sampling": ("randomize",),
    "dither_client.spending": ("MetricSpending", "PrivacyLedger"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BudgetExhaustedError",
    "Client",
    "FlushResult",
    "MetricSpending",
    "NotConsentedError",
    "Pending",
    "PrivacyLedger",
    "RecordResult",
    "RecordStatus",
    "StateError",
    "StrictError",
    "default_state_dir",
    "flush",
    "init",
    "randomize",
    "record",
    "shutdown",
]


def __getattr__(name: str) -> "Any":
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dither_client' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
