"""Every error that a party of the protocol can meet.

::

    DitherError
    ├── MechanismError(ValueError)      a mechanism that cannot exist: bad name, epsilon or domain size
    ├── AccountingError(ValueError)     an epsilon, a delta or a count that no bound on privacy takes
    ├── RegistryError(ValueError)       a registry that cannot be trusted; .path names the key
    ├── WindowError(ValueError)         a window label that is not one of its period
    ├── MetricUsageError                the app asks for something that its registry does not have
    │   ├── UnknownMetricError(KeyError)
    │   ├── ValueTypeError(TypeError)
    │   ├── ValueDomainError(ValueError)
    │   └── DimensionError(ValueError)
    ├── WireError(ValueError)           bytes that are not what the wire format says; .field names the place
    │   ├── BatchError                  the whole batch is refused; .problem is a BatchProblem
    │   └── ReportError                 this report is refused; .rejection is a Rejection
    └── StorageError(ValueError)        bytes in the store that no party of this version wrote

No error ever carries a raw value, nor payload bytes: messages name the field and the rule that it broke.
"""

from enum import StrEnum


class Rejection(StrEnum):
    """Why one report was refused. Stable: clients and dashboards rely on these words."""

    MALFORMED_REPORT = "malformed-report"
    UNKNOWN_METRIC = "unknown-metric"
    UNKNOWN_VERSION = "unknown-version"
    METRIC_EXPIRED = "metric-expired"
    PARAMS_MISMATCH = "params-mismatch"
    DIMENSIONS_INVALID = "dimensions-invalid"
    WINDOW_INVALID = "window-invalid"
    REPORT_TOO_EARLY = "report-too-early"
    REPORT_TOO_OLD = "report-too-old"
    PAYLOAD_INVALID = "payload-invalid"


class BatchProblem(StrEnum):
    """Why a whole batch was refused. Stable, and never retryable: the same bytes would fail again."""

    MALFORMED_BODY = "malformed-body"
    TOO_MANY_REPORTS = "too-many-reports"
    UNTIL_PAST = "until-past"
    UNTIL_TOO_FAR = "until-too-far"


class DitherError(Exception):
    """Base of all errors raised by Dither."""


class MechanismError(DitherError, ValueError):
    """A mechanism with these parameters does not exist."""


class AccountingError(DitherError, ValueError):
    """An epsilon, a delta or a count that no bound on privacy takes."""


class RegistryError(DitherError, ValueError):
    """The registry breaks a rule. ``path`` names the key, such as ``metrics.dark_mode.epsilon``."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class WindowError(DitherError, ValueError):
    """A window label is not one of its period."""


class MetricUsageError(DitherError):
    """A programming mistake in the app: it asks for something that its registry does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print the repr


class UnknownMetricError(MetricUsageError, KeyError):
    """The registry has no metric of this name."""


class ValueTypeError(MetricUsageError, TypeError):
    """The value has not the Python type of the metric."""


class ValueDomainError(MetricUsageError, ValueError):
    """The value is none of the metric's domain. The message does not repeat the value."""


class DimensionError(MetricUsageError, ValueError):
    """The dimensions are not those of the metric, or one has a value outside its closed list."""


class WireError(DitherError, ValueError):
    """Bytes that are not what the wire format says. ``field`` names the place, such as ``until``."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


class BatchError(WireError):
    """The whole batch is refused."""

    def __init__(self, problem: BatchProblem, field: str, detail: str) -> None:
        super().__init__(field, detail)
        self.problem = problem


class ReportError(WireError):
    """One report is refused, its neighbours are not."""

    def __init__(self, rejection: Rejection, field: str, detail: str) -> None:
        super().__init__(field, detail)
        self.rejection = rejection


class StorageError(DitherError, ValueError):
    """Bytes in the store that no party of this version wrote."""
