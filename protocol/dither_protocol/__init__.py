"""What all parties of Dither must agree on: mechanisms, registry, windows, wire and store formats.

Standard library only. Names are loaded when they are first used, since the SDK imports this package inside
other people's programs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither_protocol.accounting.bounds import Bound
    from dither_protocol.accounting.budget import PrivacyBudgetManager
    from dither_protocol.accounting.loss import PrivacyLoss
    from dither_protocol.accounting.renyi import RenyiFilter
    from dither_protocol.accounting.shuffling import shuffled_epsilon
    from dither_protocol.errors import (
        AccountingError,
        BatchError,
        BatchProblem,
        DimensionError,
        DitherError,
        MechanismError,
        MetricUsageError,
        RegistryError,
        Rejection,
        ReportError,
        StorageError,
        UnknownMetricError,
        ValueDomainError,
        ValueTypeError,
        WindowError,
        WireError,
    )
    from dither_protocol.mechanisms import MECHANISMS, Mechanism, mechanism
    from dither_protocol.registry import (
        Metric,
        Registry,
        load_registry,
        parse_registry,
        registry_from_document,
    )

_HOMES = {
    "dither_protocol.accounting.bounds": ("Bound",),
    "dither_protocol.accounting.budget": ("PrivacyBudgetManager",),
    "dither_protocol.accounting.loss": ("PrivacyLoss",),
    "dither_protocol.accounting.renyi": ("RenyiFilter",),
    "dither_protocol.accounting.shuffling": ("shuffled_epsilon",),
    "dither_protocol.errors": (
        "AccountingError", "BatchError", "BatchProblem", "DimensionError", "DitherError", "MechanismError",
        "MetricUsageError", "RegistryError", "Rejection", "ReportError", "StorageError", "UnknownMetricError",
        "ValueDomainError", "ValueTypeError", "WindowError", "WireError",
    ),
    "dither_protocol.mechanisms": ("MECHANISMS", "Mechanism", "mechanism"),
    "dither_protocol.registry": (
        "Metric", "Registry", "load_registry", "parse_registry", "registry_from_document",
    ),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "MECHANISMS",
    "AccountingError",
    "BatchError",
    "BatchProblem",
    "Bound",
    "DimensionError",
    "DitherError",
    "Mechanism",
    "MechanismError",
    "Metric",
    "MetricUsageError",
    "PrivacyBudgetManager",
    "PrivacyLoss",
    "Registry",
    "RegistryError",
    "Rejection",
    "RenyiFilter",
    "ReportError",
    "StorageError",
    "UnknownMetricError",
    "ValueDomainError",
    "ValueTypeError",
    "WindowError",
    "WireError",
    "load_registry",
    "mechanism",
    "parse_registry",
    "registry_from_document",
    "shuffled_epsilon",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dither_protocol' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
