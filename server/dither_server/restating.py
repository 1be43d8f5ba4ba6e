"""Published estimates with the intervals that are asked for, within what one answer may take.

Computing intervals anew takes a processor, so an answer does so for so many values and no more, and documents whose
intervals were computed a moment ago are remembered: an open page asks for the same every two seconds.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Final

from dither_protocol.registry import Metric
from dither_server.estimates_query import Intervals
from dither_server.published import first_windows
from dither_server.selection import Selection
from dither_server.statistics_plugin import restated_document, statistics
from dither_server.store_rules import Published

ANSWER_WEIGHT: Final = 6_000_000
"""The most that the documents of one answer weigh together; a quarter of a second of a processor, see the README."""

_EACH: Final = 6_000
"""A document takes as long as so many bytes, besides its own bytes."""

_VALUE_BYTES: Final = 230
"""About so long is what is published of one value."""

_REMEMBERED_BYTES: Final = 16 << 20

_Key = tuple[bytes, Intervals]


def windows_of_one_answer(metrics: Iterable[Metric], selection: Selection) -> int | None:
    """About how many windows one answer may have, so that no more are read; None where that is not known.

    Args:
        metrics: the known versions of the metric.
        selection: which estimates are asked for.
    """
    one_cell = selection.dimensions is not None or selection.rollup is not None
    windows = [
        (1 if one_cell else 1 + math.prod(map(len, metric.dimensions.values())))
        * (_EACH + _VALUE_BYTES * len(metric.labels))
        for metric in metrics
    ]
    return max(1, ANSWER_WEIGHT // max(windows)) if windows else None


def restated_page(published: Published, intervals: Intervals) -> Published:
    """The first windows of a page with other intervals, as many as one answer may have.

    Raises:
        Problem: as `restated` does.
    """
    return restated(first_windows(published, ANSWER_WEIGHT, weight), intervals)


def weight(document: bytes) -> int:
    """How long a document takes, in bytes; about 40 ns each."""
    return len(document) + _EACH


def restated(published: Published, intervals: Intervals) -> Published:
    """The same estimates with other intervals. Over several versions there are no simultaneous ones.

    Raises:
        Problem: statistics-not-installed; level-unavailable where a document holds no counts.
    """
    if intervals.as_published:
        return published
    statistics()  # what is remembered is not there either where nothing could be computed

    def again(documents: Mapping[tuple[str, str], bytes]) -> dict[tuple[str, str], bytes]:
        return {key: _remembered((text, intervals)) for key, text in documents.items()}

    return replace(
        published,
        versions=[replace(version, estimates=again(version.estimates)) for version in published.versions],
        combined={} if intervals.simultaneous else again(published.combined),
    )


class Remembered:
    """Results of a function, the latest used ones, up to so many bytes of arguments and results. Thread-safe.

    Args:
        compute: the function. What it raises is raised, and nothing is remembered.
        most_bytes: that are kept.
    """

    def __init__(self, compute: Callable[[_Key], bytes], most_bytes: int) -> None:
        self._compute = compute
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._found: OrderedDict[_Key, bytes] = OrderedDict()
        self._bytes = 0

    def __call__(self, key: _Key) -> bytes:
        """The result, computed where it is not remembered; threads compute side by side."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        result = self._compute(key)
        with self._lock:
            if key not in self._found:
                self._found[key] = result
                self._bytes += len(key[0]) + len(result)
            while self._bytes > self._most_bytes:
                (text, _), oldest = self._found.popitem(last=False)
                self._bytes -= len(text) + len(oldest)
        return result


def _compute(key: _Key) -> bytes:
    text, intervals = key
    return restated_document(text, intervals.level, simultaneous=intervals.simultaneous)


_remembered: Final = Remembered(_compute, _REMEMBERED_BYTES)
