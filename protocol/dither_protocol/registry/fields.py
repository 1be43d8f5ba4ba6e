"""Reading single keys of a registry, each with its rule."""

import math
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from dither_protocol.errors import MechanismError, RegistryError
from dither_protocol.labels import NAME, label_problem, normalize
from dither_protocol.mechanisms import AUTO, MAX_D, Mechanism, mechanism
from dither_protocol.registry.calibration import read_calibration
from dither_protocol.registry.metric import BOOLEAN_LABELS, FRESH, MEMOIZED, Metric
from dither_protocol.windows import ONCE, PERIODS

MAX_LATE_DAYS: Final = 30
MAX_RETENTION_DAYS: Final = 36_500  # so that no date leaves the calendar
MAX_DIMENSIONS: Final = 16  # so that the name of a cell, percent-encoded, stays below 2^16 bytes
MAX_DIMENSION_CELLS: Final = 1_000

USE_CASES: Final[dict[str, tuple[float, float]]] = {
    "census": (0.1, 1),
    "healthcare": (0.5, 2),
    "location": (1, 3),
    "product_analytics": (1, 5),
    "ab_test": (2, 8),
    "public_report": (0.5, 3),
}
"""Usual range of epsilon by use case (design section 9): guidance, warned about outside it."""

_METRIC_KEYS: Final = frozenset(
    {
        "version", "type", "description", "owner", "expires", "categories", "epsilon", "mechanism", "period",
        "collection", "epsilon_permanent", "max_distinct_values",
        "dimensions", "min_reports", "late_days", "retention_days", "use_case", "one_of",
        "calibration",
    }
)  # fmt: skip
_ISO_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def table(path: str, value: object) -> Mapping[str, Any]:
    """``value`` as a table."""
    if not isinstance(value, Mapping):
        raise RegistryError(path, "must be a table")
    return value


def refuse_unknown(path: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse keys that are not ``known``: a misspelt key must not silently mean its default."""
    for key in given:
        if key not in known:
            where = f"{path}.{key}" if path else str(key)
            raise RegistryError(where, "unknown key; known are " + ", ".join(sorted(known)))


def required(path: str, given: Mapping[str, Any], key: str) -> Any:
    """The value of a key that has no default."""
    if key not in given:
        raise RegistryError(f"{path}.{key}" if path else key, "is required")
    return given[key]


def text(path: str, value: object) -> str:
    """``value`` as a str without control characters."""
    if not isinstance(value, str):
        raise RegistryError(path, "must be a string")
    if any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in value):
        raise RegistryError(path, "must have no control characters")
    return value


def whole(path: str, value: object, low: int = 0, high: int = 2**31 - 1) -> int:
    """``value`` as an int in [low, high]; True is not 1."""
    if type(value) is not int or not low <= value <= high:
        raise RegistryError(path, f"must be a whole number from {low} to {high}")
    return value


def positive(path: str, value: object) -> float:
    """``value`` as a finite float above zero."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max:
        return float(value)
    raise RegistryError(path, "must be a finite number above 0")


def choice(path: str, value: object, among: Sequence[str]) -> str:
    """``value`` as one of the words ``among``."""
    if not isinstance(value, str) or value not in among:
        raise RegistryError(path, "must be one of " + ", ".join(among))
    return value


def day(path: str, value: object) -> date:
    """``value`` as a date: a TOML date, or ISO text in the JSON form."""
    if isinstance(value, str) and _ISO_DATE.fullmatch(value):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            raise RegistryError(path, "is no day of the calendar") from None
    if not isinstance(value, date) or isinstance(value, datetime) or not 2000 <= value.year < 2200:
        raise RegistryError(path, "must be a date such as 2027-06-30")
    return value


def labels(path: str, value: object, low: int, high: int) -> tuple[str, ...]:
    """``value`` as a list of distinct labels in normal form C."""
    if not isinstance(value, list | tuple) or not low <= len(value) <= high:
        raise RegistryError(path, f"must be a list of {low} to {high} labels")
    seen: dict[str, int] = {}
    for position, item in enumerate(value):
        where = f"{path}[{position}]"
        if not isinstance(item, str):
            raise RegistryError(where, "must be a string")
        label = normalize(item)
        problem = label_problem(label)
        if problem:
            raise RegistryError(where, problem)
        first = seen.setdefault(label, position)
        if first != position:
            raise RegistryError(where, f"is the same label as {path}[{first}] after Unicode normalisation")
    return tuple(seen)


def dimensions(path: str, value: object) -> dict[str, tuple[str, ...]]:
    """``value`` as closed lists of labels by dimension name."""
    given = table(path, value)
    if len(given) > MAX_DIMENSIONS:
        raise RegistryError(path, f"must hold at most {MAX_DIMENSIONS} dimensions")
    found: dict[str, tuple[str, ...]] = {}
    for name, values in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise RegistryError(path, "a dimension's name must match [a-z][a-z0-9_]{0,63}")
        found[name] = labels(f"{path}.{name}", values, 1, MAX_DIMENSION_CELLS)
    if math.prod(len(values) for values in found.values()) > MAX_DIMENSION_CELLS:
        raise RegistryError(path, f"must not make more than {MAX_DIMENSION_CELLS} combinations")
    return found


def _domain(path: str, kind: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    if kind == "boolean":
        if "categories" in given:
            raise RegistryError(f"{path}.categories", "a boolean has none")
        return BOOLEAN_LABELS
    return labels(f"{path}.categories", required(path, given, "categories"), 2, MAX_D)


_MEMOIZED_KEYS: Final = ("epsilon_permanent", "max_distinct_values")


def _mechanism(path: str, given: Mapping[str, Any], d: int, collection: str) -> Mechanism:
    epsilon = positive(f"{path}.epsilon", required(path, given, "epsilon"))
    name = text(f"{path}.mechanism", given.get("mechanism", AUTO))
    try:
        if collection == FRESH:
            return mechanism(name, epsilon, d)
        from dither_protocol.mechanisms import memoized  # noqa: PLC0415  few registries have some

        permanent = required(path, given, "epsilon_permanent")
        return memoized(name, epsilon, d, positive(f"{path}.epsilon_permanent", permanent))
    except MechanismError as error:
        first = str(error).split(" ", 1)[0]
        key = first if first in ("epsilon", "epsilon_permanent") else "mechanism"
        raise RegistryError(f"{path}.{key}", str(error)) from None


def _collection(path: str, given: Mapping[str, Any]) -> str:
    found = choice(f"{path}.collection", given.get("collection", FRESH), (FRESH, MEMOIZED))
    for key in _MEMOIZED_KEYS if found == FRESH else ():
        if key in given:
            raise RegistryError(f"{path}.{key}", "belongs to collection = 'memoized'")
    return found


def _max_distinct_values(path: str, given: Mapping[str, Any], d: int, collection: str) -> int | None:
    if collection == FRESH:
        return None
    found = required(path, given, "max_distinct_values")
    return whole(f"{path}.max_distinct_values", found, low=1, high=d)


def _retention(path: str, given: Mapping[str, Any]) -> int | None:
    if "retention_days" not in given:
        return None
    return whole(f"{path}.retention_days", given["retention_days"], low=1, high=MAX_RETENTION_DAYS)


def _one_of(path: str, given: Mapping[str, Any], collection: str) -> str | None:
    if "one_of" not in given:
        return None
    group = given["one_of"]
    if not isinstance(group, str) or not NAME.fullmatch(group):
        raise RegistryError(
            f"{path}.one_of", "must be the name of a group, which matches [a-z][a-z0-9_]{0,63}"
        )
    if collection != FRESH:
        # A permanent answer is charged for life at its first report, so that drawing it less often saves nothing.
        raise RegistryError(f"{path}.one_of", "belongs to collection = 'fresh'")
    return group


def read_metric(name: str, given: Mapping[str, Any]) -> Metric:
    """One table ``[metrics.<name>]`` as a Metric.

    Raises:
        RegistryError: a key is missing, unknown or breaks its rule.
    """
    path = f"metrics.{name}"
    refuse_unknown(path, given, _METRIC_KEYS)
    kind = choice(f"{path}.type", required(path, given, "type"), ("boolean", "categorical"))
    period = choice(f"{path}.period", given.get("period", "day"), PERIODS)
    if period == ONCE and "expires" not in given:
        raise RegistryError(f"{path}.expires", "is required where period is 'once'")
    domain = _domain(path, kind, given)
    collection = _collection(path, given)
    use_case = given.get("use_case")
    return Metric(
        name=name,
        version=whole(f"{path}.version", required(path, given, "version"), low=1),
        type=kind,
        description=text(f"{path}.description", required(path, given, "description")),
        owner=text(f"{path}.owner", given.get("owner", "")),
        labels=domain,
        mechanism=_mechanism(path, given, len(domain), collection),
        period=period,
        collection=collection,
        dimensions=dimensions(f"{path}.dimensions", given.get("dimensions", {})),
        expires=day(f"{path}.expires", given["expires"]) if "expires" in given else None,
        min_reports=whole(f"{path}.min_reports", given.get("min_reports", 100), low=1),
        late_days=whole(f"{path}.late_days", given.get("late_days", 3), high=MAX_LATE_DAYS),
        retention_days=_retention(path, given),
        use_case=None if use_case is None else choice(f"{path}.use_case", use_case, tuple(USE_CASES)),
        max_distinct_values=_max_distinct_values(path, given, len(domain), collection),
        one_of=_one_of(path, given, collection),
        calibration=read_calibration(path, given, len(domain), fresh=collection == FRESH),
    )
