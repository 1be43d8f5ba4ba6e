"""One metric: what is asked, of whom, how often, and with how much noise."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Final

from dither_protocol.errors import DimensionError, ValueDomainError, ValueTypeError
from dither_protocol.labels import MAX_LABEL_LENGTH, normalize
from dither_protocol.mechanisms import Mechanism
from dither_protocol.windows import Window, closes_at, parse_window, window_at

BOOLEAN_LABELS = ("false", "true")

FRESH: Final = "fresh"
"""Collection by independent answers."""

MEMOIZED: Final = "memoized"
"""Collection by a permanent answer for each value, and a fresh round over it for each report."""

Dimensions = tuple[tuple[str, str], ...]
"""Dimension names with their values, sorted by name: the hashable form used inside."""


def canonical_dimensions(dimensions: Mapping[str, str]) -> Dimensions:
    """Dimensions as sorted (name, NFC value) pairs."""
    return tuple(sorted((name, normalize(value)) for name, value in dimensions.items()))


@dataclass(frozen=True)
class Metric:
    """A question that devices answer, with its domain and its privacy budget.

    Attributes:
        name: unique within the registry.
        version: raised whenever the meaning changes.
        type: boolean or categorical.
        description: the question, for people.
        owner: whom to ask about it; may be empty.
        labels: the domain in index order, NFC. A boolean has ("false", "true").
        mechanism: the oracle that randomises answers, with epsilon and d.
        period: hour, day, week, month or once.
        collection: fresh or memoized; the mechanism of a memoised metric is the chain of both rounds.
        dimensions: closed list of values for each public attribute; every report carries all of them.
        expires: last day on which a window may begin; None for never.
        min_reports: below it a cell is suppressed.
        late_days: how long after its end a window still takes reports.
        retention_days: how long after that everything about the window is kept; None for ever.
        use_case: a word for the epsilon guidance, or None.
        max_distinct_values: of a memoised metric, how many values get a permanent answer of their own; else None.
        one_of: name of the group of metrics of which a device answers one per window; None where it has none. No part
            of ``params_hash``: it decides how many devices report, not what a report means.
        calibration: of a calibration metric, whole weights of its true answers by label: the device draws its answer by
            them, and asks nobody. None where the app gives the answer.
    """

    name: str
    version: int
    type: str
    description: str
    owner: str
    labels: tuple[str, ...]
    mechanism: Mechanism
    period: str
    collection: str
    dimensions: Mapping[str, tuple[str, ...]]
    expires: date | None
    min_reports: int
    late_days: int
    retention_days: int | None
    use_case: str | None
    max_distinct_values: int | None = None
    one_of: str | None = None
    calibration: tuple[int, ...] | None = None

    def __hash__(self) -> int:
        """By what gives a report its meaning: the generated one would fail at the mapping of dimensions.

        The mapping is not wrapped: its type forbids writing, and a read-only proxy could be neither pickled nor
        written as JSON.
        """
        return hash((self.name, self.version, self.params_hash))

    @property
    def epsilon(self) -> float:
        """Declared privacy loss of one report."""
        return self.mechanism.epsilon

    @property
    def epsilon_permanent(self) -> float | None:
        """Declared privacy loss of one permanent answer of a memoised metric; None of a fresh one."""
        found: float | None = getattr(
            self.mechanism, "epsilon_permanent", None
        )  # of chains, loaded where needed
        return found

    @property
    def true_shares(self) -> tuple[float, ...] | None:
        """The true share of each label of a calibration metric; None of any other, whose truth nobody knows."""
        if self.calibration is None:
            return None
        total = sum(self.calibration)
        return tuple(weight / total for weight in self.calibration)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    @property
    def params_hash(self) -> str:
        """First 8 hex digits of `meaning_hash`: enough to tell honest registries apart, and short on the wire."""
        return self.meaning_hash[:8]

    @cached_property
    def meaning_hash(self) -> str:
        """SHA-256 of the canonical JSON of all that gives a report its meaning, 64 hex digits.

        The mechanism stands here by the name that ``auto`` resolved to: a device and a server that resolve it
        differently must not mix their reports. Labels keep their order, which gives the indices a meaning; the
        values of a dimension are sorted, since their order has none.
        """
        meaning = {
            "name": self.name,
            "version": self.version,
            "type": self.type,
            "labels": self.labels,
            "mechanism": self.mechanism.name,
            "epsilon": self.epsilon,
            "period": self.period,
            "collection": self.collection,
            "dimensions": {name: sorted(values) for name, values in self.dimensions.items()},
        }
        if self.collection == MEMOIZED:
            meaning |= {
                "epsilon_permanent": self.epsilon_permanent,
                "max_distinct_values": self.max_distinct_values,
            }
        if self.calibration is not None:
            meaning["calibration"] = self.calibration
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def index_of(self, value: object) -> int:
        """The index of an answer in the domain. The value is never repeated in an error (invariant P1).

        Raises:
            ValueTypeError: not a bool for a boolean, not a str for a categorical; any answer to a calibration metric.
            ValueDomainError: a str that is none of the categories.
        """
        if self.calibration is not None:
            raise ValueTypeError(f"metric '{self.name}' is a calibration metric and takes no value")
        if self.type == "boolean":
            if type(value) is not bool:
                raise ValueTypeError(f"metric '{self.name}' takes True or False")
            return int(value)
        if not isinstance(value, str):
            raise ValueTypeError(f"metric '{self.name}' takes a str")
        index = None
        if len(value) <= 4 * MAX_LABEL_LENGTH:  # NFC never shrinks a text to less than a quarter
            index = self._index.get(normalize(value))
        if index is None:
            raise ValueDomainError(f"the value is none of the categories of metric '{self.name}'")
        return index

    def check_dimensions(self, dimensions: Mapping[str, str] | None) -> Dimensions:
        """The dimensions of one report in canonical form: exactly the declared names, with listed values.

        Raises:
            DimensionError: a missing, unknown or wrongly typed dimension, or a value outside its list.
        """
        if dimensions is None and not self.dimensions:
            return ()
        given = {} if dimensions is None else dimensions
        if not isinstance(given, Mapping) or not all(
            isinstance(name, str) and isinstance(value, str) for name, value in given.items()
        ):
            raise DimensionError("dimensions must map names to strings")
        if given.keys() != self.dimensions.keys():
            expected = ", ".join(sorted(self.dimensions)) or "none"
            raise DimensionError(f"metric '{self.name}' takes the dimensions: {expected}")
        canonical = canonical_dimensions(given)
        for name, value in canonical:
            if value not in self.dimensions[name]:
                raise DimensionError(f"the value of dimension '{name}' is not in its list")
        return canonical

    def window_at(self, when: datetime) -> Window:
        """The window of this metric that contains ``when``."""
        return window_at(self.period, when, self.expires)

    def parse_window(self, label: str) -> Window:
        """The window that ``label`` names.

        Raises:
            WindowError: not a label of this metric's period.
        """
        return parse_window(self.period, label, self.expires)

    def closes_at(self, window: Window) -> datetime:
        """The first instant at which reports about ``window`` are no longer accepted."""
        return closes_at(window, self.late_days)

    def expired(self, window: Window) -> bool:
        """Whether ``window`` begins after the last day of the metric."""
        return self.expires is not None and self.period != "once" and window.start.date() > self.expires
