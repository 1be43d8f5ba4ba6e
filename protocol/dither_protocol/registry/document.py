"""From a TOML file or its JSON form to a Registry. Unknown keys are errors; every error names its key."""

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from dither_protocol.errors import RegistryError
from dither_protocol.labels import NAME, PROJECT_NAME
from dither_protocol.registry import fields
from dither_protocol.registry.metric import Metric
from dither_protocol.registry.model import Privacy, Registry

SCHEMA: Final = 1
MAX_METRICS: Final = 10_000

_TOP_KEYS: Final = frozenset({"schema", "project", "privacy", "metrics"})


def load_registry(path: str | Path) -> Registry:
    """Read a registry from a TOML file.

    Raises:
        OSError: the file cannot be read.
        RegistryError: it breaks a rule.
    """
    return parse_registry(Path(path).read_bytes())


def parse_registry(text: str | bytes) -> Registry:
    """Read a registry from TOML text.

    Raises:
        RegistryError: it is not TOML, or it breaks a rule.
    """
    import tomllib  # noqa: PLC0415  an app whose registry is a dict, or fetched, need not pay for it

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        document = tomllib.loads(text)
    except UnicodeDecodeError:
        raise RegistryError("registry", "is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise RegistryError("registry", f"is not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets thousands deep
        raise RegistryError("registry", "is not TOML that this version reads") from None
    return registry_from_document(document)


def registry_from_document(document: object) -> Registry:
    """Read a registry from nested mappings: parsed TOML, or the JSON that ``GET /v1/registry`` serves.

    Raises:
        RegistryError: it breaks a rule; ``path`` names the key.
    """
    table = fields.table("registry", document)
    fields.refuse_unknown("", table, _TOP_KEYS)
    if fields.whole("schema", fields.required("", table, "schema")) != SCHEMA:
        raise RegistryError("schema", f"this version reads schema {SCHEMA}")
    project = fields.text("project", fields.required("", table, "project"))
    if not PROJECT_NAME.fullmatch(project):
        raise RegistryError("project", "must match [a-z][a-z0-9_-]{0,63}")
    metrics_table = fields.table("metrics", fields.required("", table, "metrics"))
    if not 1 <= len(metrics_table) <= MAX_METRICS:
        raise RegistryError("metrics", f"must hold 1 to {MAX_METRICS} metrics")
    metrics = {name: _metric(name, fields_of) for name, fields_of in metrics_table.items()}
    _check_groups(metrics)
    privacy = _privacy(fields.table("privacy", table.get("privacy", {})))
    return Registry(project, privacy, metrics, _plain(table))


def _check_groups(metrics: Mapping[str, Metric]) -> None:
    """The members of a group share the windows for which one of them is drawn."""
    first: dict[str, Metric] = {}
    for name, metric in metrics.items():
        if metric.one_of is None:
            continue
        other = first.setdefault(metric.one_of, metric)
        if other.period != metric.period:
            problem = (
                f"a device answers one metric of '{metric.one_of}' per window, but '{name}' asks by {metric.period} "
                f"and '{other.name}' by {other.period}: the members of a group must have one period"
            )
            raise RegistryError(f"metrics.{name}.one_of", problem)


def _privacy(table: Mapping[str, Any]) -> Privacy:
    fields.refuse_unknown("privacy", table, frozenset(_PRIVACY_KEYS))
    return Privacy(**{key: _PRIVACY_KEYS[key](f"privacy.{key}", value) for key, value in table.items()})


def _delta(path: str, value: object) -> float:
    delta = fields.positive(path, value)
    if delta >= 1:
        raise RegistryError(path, "must be below 1")
    return delta


def _devices(path: str, value: object) -> int:
    return fields.whole(path, value, low=1)


_PRIVACY_KEYS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "max_epsilon_per_day": fields.positive,
    "max_epsilon_lifetime": fields.positive,
    "delta": _delta,
    "expected_devices": _devices,
}


def _metric(name: str, value: object) -> Metric:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RegistryError("metrics", "a metric's name must match [a-z][a-z0-9_]{0,63}")
    return fields.read_metric(name, fields.table(f"metrics.{name}", value))


def _plain(value: Any) -> Any:
    """The same document in JSON's types: dates become ISO text."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, date) else value
