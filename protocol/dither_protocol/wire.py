"""The wire format of design section 7: batches and reports as JSON, read strictly.

Encoding is canonical, so that equal batches are equal bytes. Reading is split in two, because one bad report
rejects only itself: `parse_envelope` refuses a whole batch, `parse_report` a single report.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dither_protocol.errors import BatchError, BatchProblem, MechanismError, Rejection, ReportError
from dither_protocol.mechanisms.forms import decode_base64url, encode_base64url

BATCH_ID_BYTES: Final = 16
MAX_BODY_BYTES: Final = 1 << 20
MAX_INFLATED_BYTES: Final = 8 << 20
MAX_REPORTS: Final = 1_000

REPORT_KEYS: Final = frozenset({"metric", "version", "params", "window", "dimensions", "data"})
_MAX_TEXT: Final = 400  # longer than any name, label or window that could be right
_compact: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


class Report(NamedTuple):
    """One randomised answer, with the types of the wire checked and nothing else.

    Attributes:
        metric: name of the metric.
        version: its version.
        params: its params_hash.
        window: label of the window.
        dimensions: public attributes.
        data: what the mechanism made of the answer; only the mechanism can check it.
    """

    metric: str
    version: int
    params: str
    window: str
    dimensions: Mapping[str, str]
    data: Any


class Envelope(NamedTuple):
    """A batch whose reports have not been looked at yet.

    Attributes:
        batch_id: 16 random bytes.
        until: last UTC date on which the batch is accepted, and its id remembered.
        reports: one JSON value per report, unchecked.
    """

    batch_id: bytes
    until: date
    reports: Sequence[object]


def new_batch_id() -> bytes:
    """128 fresh random bits: batches of one device share nothing that links them (invariant P5)."""
    return os.urandom(BATCH_ID_BYTES)


def encode_report(report: Report) -> str:
    """One report as compact JSON text."""
    return encode_fields(
        report.metric,
        report.version,
        report.params,
        report.window,
        dimensions=tuple(sorted(report.dimensions.items())),
        data=report.data,
    )


def encode_fields(
    metric: str,
    version: int,
    params: str,
    window: str,
    *,
    dimensions: tuple[tuple[str, str], ...],
    data: Any,
) -> str:
    """`encode_report` of these fields, the dimensions as sorted pairs: an app waits for it in every `record()`.

    The encoder has a short way for strings alone: a number or an object costs it 2 us.
    """
    before, after = _frame(metric, version, params, dimensions)
    text = str(data) if type(data) is int else _compact(data)
    return f"{before}{_compact(window)}{after}{text}}}"


@lru_cache(maxsize=256, typed=True)
def _frame(
    metric: str, version: int, params: str, dimensions: tuple[tuple[str, str], ...]
) -> tuple[str, str]:
    """What stands before the window of a report, and between it and the data: alike in all answers to a metric."""
    names = f'"metric":{_compact(metric)},"version":{_compact(version)},"params":{_compact(params)}'
    return f'{{{names},"window":', f',"dimensions":{_compact(dict(dimensions))},"data":'


def encode_batch(batch_id: bytes, until: date, reports: Iterable[str]) -> bytes:
    """A sealed batch from reports that `encode_report` made. Equal arguments give equal bytes."""
    head = f'{{"batch":"{encode_base64url(batch_id)}","until":"{until.isoformat()}","reports":['
    return (head + ",".join(reports) + "]}").encode("utf-8")


def split_batch(body: bytes) -> list[str]:
    """The reports of a batch that `encode_batch` made, each as the text that went in."""
    reports: list[dict[str, Any]] = json.loads(body)["reports"]
    return [_compact(report) for report in reports]


def _refuse_constant(_: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


def decode_json(body: bytes | str) -> object:
    """JSON without Python's extensions (NaN, Infinity).

    Raises:
        BatchError: it is not JSON.
    """
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BatchError(BatchProblem.MALFORMED_BODY, "body", "is not valid JSON") from None


def _malformed(field: str, detail: str) -> BatchError:
    return BatchError(BatchProblem.MALFORMED_BODY, field, detail)


def parse_envelope(document: object) -> Envelope:
    """Check what concerns the batch as a whole. Unknown keys beside the three known ones are ignored.

    Raises:
        BatchError: a key is missing or of the wrong form, or there are no or too many reports.
    """
    if not isinstance(document, dict):
        raise _malformed("body", "must be a JSON object")
    for key in ("batch", "until", "reports"):
        if key not in document:
            raise _malformed(key, "is required")
    batch, until, reports = document["batch"], document["until"], document["reports"]
    if not isinstance(batch, str):
        raise _malformed("batch", "must be a base64url string of 16 bytes")
    try:
        batch_id = decode_base64url(batch, BATCH_ID_BYTES)
    except MechanismError as error:
        raise _malformed("batch", str(error)) from None
    if not isinstance(reports, list) or not reports:
        raise _malformed("reports", "must be a list of at least one report")
    if len(reports) > MAX_REPORTS:
        raise BatchError(BatchProblem.TOO_MANY_REPORTS, "reports", f"must be at most {MAX_REPORTS}")
    return Envelope(batch_id, _until(until), reports)


def _until(value: object) -> date:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise _malformed("until", "must be a date such as 2026-12-02")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise _malformed("until", "is no day of the calendar") from None


def _bad_report(field: str, detail: str) -> ReportError:
    return ReportError(Rejection.MALFORMED_REPORT, field, detail)


def _short_text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise _bad_report(key, "must be a short string")
    return value


def parse_report(document: object) -> Report:
    """Check the types of one report. Unknown keys are refused: they might carry what must not leave a device.

    Raises:
        ReportError: MALFORMED_REPORT, naming the key.
    """
    if not isinstance(document, dict):
        raise _bad_report("report", "must be a JSON object")
    missing = REPORT_KEYS - document.keys() - {"dimensions"}
    if missing:
        raise _bad_report(min(missing), "is required")
    if document.keys() - REPORT_KEYS:
        raise _bad_report("report", "has an unknown key; known are " + ", ".join(sorted(REPORT_KEYS)))
    version = document["version"]
    if type(version) is not int or not 1 <= version < 2**31:
        raise _bad_report("version", "must be a whole number from 1")
    dimensions = document.get("dimensions", {})
    if not isinstance(dimensions, dict) or not all(
        isinstance(value, str) and len(value) <= _MAX_TEXT for value in dimensions.values()
    ):
        raise _bad_report("dimensions", "must map names to short strings")
    return Report(
        metric=_short_text(document, "metric"),
        version=version,
        params=_short_text(document, "params"),
        window=_short_text(document, "window"),
        dimensions=dimensions,
        data=document["data"],
    )
