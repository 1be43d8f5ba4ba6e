import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import BatchError, BatchProblem, Rejection, ReportError
from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.wire import (
    BATCH_ID_BYTES,
    MAX_REPORTS,
    REPORT_KEYS,
    Report,
    decode_json,
    encode_batch,
    encode_report,
    new_batch_id,
    parse_envelope,
    parse_report,
)
from support.protocol_samples import MARKER, refused
from support.wire_documents import report_document

REPORT = Report("browser", 1, "3f9a1c2b", "2026-11-29", {"os": "linux", "channel": "beta"}, 3)
UNTIL = date(2026, 12, 2)
BATCH_ID = bytes(range(16))
GOLDEN = (
    b'{"batch":"AAECAwQFBgcICQoLDA0ODw","until":"2026-12-02","reports":[{"metric":"browser","version":1,'
    b'"params":"3f9a1c2b","window":"2026-11-29","dimensions":{"channel":"beta","os":"linux"},"data":3}]}'
)

texts = st.text(max_size=40)
reports = st.builds(
    Report,
    metric=texts,
    version=st.integers(1, 2**31 - 1),
    params=texts,
    window=texts,
    dimensions=st.dictionaries(texts, texts, max_size=3),
    data=st.integers(0, 2**32) | texts | st.lists(st.integers(), max_size=2),
)


def _batch(**changes: object) -> dict[str, Any]:
    """A good batch with keys set; a key set to `...` is left out."""
    document = json.loads(GOLDEN) | changes
    return {key: value for key, value in document.items() if value is not ...}


def _report(**changes: object) -> dict[str, Any]:
    document = report_document(REPORT) | changes
    return {key: value for key, value in document.items() if value is not ...}


def test_canonical_bytes() -> None:
    """A batch is these very bytes: a retry of the same reports must not differ in one."""
    assert encode_batch(BATCH_ID, UNTIL, [encode_report(REPORT)]) == GOLDEN
    turned = Report(REPORT.metric, 1, REPORT.params, REPORT.window, {"channel": "beta", "os": "linux"}, 3)
    assert encode_report(turned) == encode_report(REPORT)


@given(st.binary(min_size=16, max_size=16), st.dates(), st.lists(reports, min_size=1, max_size=4))
def test_round_trip(batch_id: bytes, until: date, sent: list[Report]) -> None:
    """What was encoded is read back, whatever the texts hold."""
    body = encode_batch(batch_id, until, map(encode_report, sent))
    envelope = parse_envelope(decode_json(body))
    assert (envelope.batch_id, envelope.until) == (batch_id, until)
    assert [parse_report(document) for document in envelope.reports] == sent


@given(reports)
def test_a_report_is_the_compact_json_of_its_document(report: Report) -> None:
    """The text is put together from parts that many reports share; it is what an encoder makes of the whole."""
    assert encode_report(report) == json.dumps(report_document(report), separators=(",", ":"))


def test_one_byte_is_one_byte() -> None:
    """A batch is ASCII: no character of a label can be cut in half."""
    emoji = Report("m", 1, "p", "w", {"os": "\U0001f469\u200d\U0001f4bb\ud800"}, 0)
    assert encode_report(emoji).isascii()
    assert parse_report(decode_json(encode_report(emoji))) == emoji


def test_nan_is_never_encoded() -> None:
    """A float that is no number cannot get onto the wire."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_report(Report("m", 1, "p", "w", {}, float("nan")))


def test_batch_ids_are_fresh() -> None:
    """Every batch has its own 128 random bits."""
    ids = {new_batch_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert {len(batch_id) for batch_id in ids} == {BATCH_ID_BYTES}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b"nan",
        b"\xff\xfe\xff",
        b'{"a": "\xff"}',
        b'{"a": "\n"}',
        b"{} {}",
        b"[" * 100_000,
        b"1" * 5_000,
    ],
)
def test_no_json(body: bytes) -> None:
    """What is not JSON is a problem of the whole batch: broken, non-finite, not UTF-8, endless."""
    with pytest.raises(BatchError, match="body: is not valid JSON") as caught:
        decode_json(body)
    assert (caught.value.problem, caught.value.field) == (BatchProblem.MALFORMED_BODY, "body")


def test_json_error_keeps_quiet() -> None:
    """Python's own JSON error carries the document, so it is suppressed."""
    for body in (f'{{"a": "{MARKER}"', f"{MARKER}", f'["{MARKER}", NaN]'):
        with refused(BatchError, "body: is not valid JSON"):
            decode_json(body)


def test_truncated_body_is_no_json() -> None:
    """A body cut at any byte is refused."""
    for end in range(len(GOLDEN)):
        with pytest.raises(BatchError):
            decode_json(GOLDEN[:end])


@pytest.mark.parametrize(
    ("document", "field"),
    [
        *((document, "body") for document in (None, [], "x", 1, [{}])),
        *((_batch(**{key: ...}), key) for key in ("batch", "until", "reports")),
        *((_batch(batch=batch), "batch") for batch in (None, 1, [], "", "AAECAwQFBgcICQoLDA0OD")),
        (_batch(batch="AAECAwQFBgcICQoLDA0ODw=="), "batch"),
        (_batch(batch="AAECAwQFBgcICQoLDA0ODx"), "batch"),  # a second spelling of the same bytes
        (_batch(batch="AAECAwQFBgcICQoLDA0O+w"), "batch"),
        (_batch(batch="AAECAwQFBgcICQoLDA0O\u00e9w"), "batch"),
        (_batch(batch=encode_base64url(bytes(17))), "batch"),
        *((_batch(until=until), "until") for until in (None, 20261202, True, "", "2026-12-2", "20261202")),
        *(
            (_batch(until=until), "until")
            for until in ("2026-02-29", "2026-13-01", "0000-01-01", "2026-W49-3")
        ),
        *((_batch(until=until), "until") for until in ("2026-12-02T00:00", "2026-12-02\n", "2026-12-0２")),  # noqa: RUF001
        *((_batch(reports=value), "reports") for value in (None, [], {}, "x", 1, {"0": {}})),
    ],
)
def test_bad_envelopes(document: object, field: str) -> None:
    """A batch with a missing or ill-formed key is refused as a whole, and the error names the key."""
    with pytest.raises(BatchError) as caught:
        parse_envelope(document)
    assert (caught.value.problem, caught.value.field) == (BatchProblem.MALFORMED_BODY, field)
    assert str(caught.value) == f"{field}: {caught.value.detail}"


def test_too_many_reports() -> None:
    """A thousand reports are a batch, one more is not."""
    assert len(parse_envelope(_batch(reports=[{}] * MAX_REPORTS)).reports) == MAX_REPORTS
    with pytest.raises(BatchError, match="reports: must be at most 1000") as caught:
        parse_envelope(_batch(reports=[{}] * (MAX_REPORTS + 1)))
    assert caught.value.problem is BatchProblem.TOO_MANY_REPORTS


def test_envelope_ignores_what_it_does_not_know() -> None:
    """A later client may add keys beside the three, and reports are not looked at yet."""
    envelope = parse_envelope(_batch(later="x", reports=[None, 1]))
    assert list(envelope.reports) == [None, 1]


@pytest.mark.parametrize("key", ["batch", "until", "reports"])
def test_envelope_errors_keep_quiet(key: str) -> None:
    """An error about a batch never repeats what was sent."""
    for value in (MARKER, [MARKER] if key != "reports" else {MARKER: 1}, MARKER + "A" * 12 + "B"):
        with refused(BatchError, key):
            parse_envelope(_batch(**{key: value}))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        *((document, "report") for document in (None, [], "x", 1)),
        *((_report(**{key: ...}), key) for key in sorted(REPORT_KEYS - {"dimensions"})),
        (_report(extra=1), "report"),
        *((_report(version=value), "version") for value in (0, -1, True, 1.0, "1", None, 2**31)),
        *(
            (_report(**{key: v}), key)
            for key in ("metric", "params", "window")
            for v in (1, None, [], "a" * 401)
        ),
        *(
            (_report(dimensions=value), "dimensions")
            for value in (None, [], "x", {"os": 1}, {"os": "a" * 401})
        ),
    ],
)
def test_bad_reports(document: object, field: str) -> None:
    """A report of wrong types is malformed, and the error names the key."""
    with pytest.raises(ReportError) as caught:
        parse_report(document)
    assert (caught.value.rejection, caught.value.field) == (Rejection.MALFORMED_REPORT, field)


def test_dimensions_may_be_left_out() -> None:
    """A report without dimensions has none."""
    assert parse_report(_report(dimensions=...)).dimensions == {}


def test_only_the_mechanism_checks_data() -> None:
    """Any JSON value passes as data here."""
    for data in (None, 1.5, [1, 2], {"a": 1}, "x"):
        assert parse_report(_report(data=data)).data == data


@pytest.mark.parametrize("key", ["metric", "version", "params", "window", "dimensions", "report"])
def test_report_errors_keep_quiet(key: str) -> None:
    """An error about a report repeats neither a value nor an unknown key."""
    document = _report(**{MARKER: MARKER}) if key == "report" else _report(**{key: [MARKER]})
    with refused(ReportError, key):
        parse_report(document)
