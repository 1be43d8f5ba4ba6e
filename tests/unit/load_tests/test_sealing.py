"""Sealed batches: their bytes are the SDK's, and what must become of them is what the server does."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from dither_fleet.expectation import MALFORMED, TOO_LATE, Fate
from dither_fleet.sealing import People, Sealed, Sealer, fresh_ids, with_bad_body, with_bad_report
from dither_fleet.truth import truths_of
from dither_fleet.visit import Clock, visit
from dither_protocol.errors import BatchError
from dither_protocol.mechanisms.forms import decode_base64url, encode_base64url
from dither_protocol.registry import Registry, registry_from_document
from dither_protocol.wire import decode_json, encode_batch, encode_report, parse_envelope, parse_report
from dither_server.admission import admit
from dither_server.catalogue import Catalogue
from support.registries import small_document, small_registry

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def _metric(name: str, **given: Any) -> dict[str, Any]:
    return small_document()["metrics"]["dark_mode"] | {"description": f"Question {name}"} | given


def _registry() -> Registry:
    """The small registry with every period, a group of which one metric is answered, and a hashing mechanism."""
    document = small_document()
    document["metrics"] |= {
        "left": _metric("left", period="hour", late_days=2, one_of="sides"),
        "right": _metric(
            "right", period="hour", late_days=2, one_of="sides", dimensions={"os": ["linux", "macos"]}
        ),
        "hashed": small_document()["metrics"]["color"]
        | {"mechanism": "olh", "period": "month", "late_days": 1, "description": "Hashed"},
    }
    return registry_from_document(document)


REGISTRY = _registry()


def _sealed(clock: Clock, count: int = 60, together: int = 1, registry: Registry = REGISTRY) -> list[Sealed]:
    people = People(count, np.random.default_rng(1))
    sheets = visit(registry, NOON, clock=clock)
    made = [Sealer(sheet, truths_of(registry)).seal(people, together) for sheet in sheets]
    return [sealed for column in made for mine in column for sealed in mine]


def _judged(sealed: Sealed, registry: Registry = REGISTRY) -> Fate:
    """What the server's own rules make of a batch, in the words of the fleet."""
    try:
        envelope = parse_envelope(decode_json(sealed.body))
        admission = admit(Catalogue(registry), envelope, NOON)
    except BatchError as error:
        return Fate((), (), MALFORMED if error.problem == "malformed-body" else TOO_LATE)
    assert admission.accepted == len(envelope.reports) - len(admission.refusals)
    wrong = {refusal.index for refusal in admission.refusals}
    reports = [parse_report(document) for at, document in enumerate(envelope.reports) if at not in wrong]
    cells = [
        (report.metric, report.version, report.window, tuple(sorted(report.dimensions.items())))
        for report in reports
    ]
    return Fate(tuple(cells), tuple(refusal.rejection.value for refusal in admission.refusals))  # type: ignore[arg-type]


def _same(expected: Fate, found: Fate) -> bool:
    if expected.refused:
        return expected.refused == found.refused
    return (
        Counter(expected.cells) == Counter(found.cells)
        and Counter(expected.rejected) == Counter(found.rejected)
        and not found.refused
    )


@pytest.mark.parametrize("clock", Clock)
@pytest.mark.parametrize("together", [1, 7])
def test_the_server_does_with_each_batch_what_was_expected(clock: Clock, together: int) -> None:
    """By the server's own rules; whatever the clock of the device shows."""
    made = _sealed(clock, together=together)
    assert all(_same(sealed.fate, _judged(sealed)) for sealed in made)
    fates = [sealed.fate for sealed in made]
    if clock is not Clock.RIGHT:  # `once` alone has no window that could be missed
        assert {cell.metric for fate in fates if not fate.refused for cell in fate.cells} == {"first_color"}
    if clock is Clock.RIGHT:
        assert not any(fate.rejected or fate.refused for fate in fates)
    elif clock is Clock.EARLY:
        assert any("report-too-early" in fate.rejected for fate in fates)
    else:
        assert any(fate.refused == TOO_LATE for fate in fates)


@pytest.mark.parametrize("together", [1, 7])
def test_a_bad_report_rejects_itself_and_a_bad_body_the_batch(together: int) -> None:
    """Both are what the server makes of the damaged bytes; what is wrong already stays."""
    for sealed in _sealed(Clock.RIGHT, together=together):
        bad = with_bad_report(sealed)
        assert bad.fate.rejected == ("payload-invalid",)
        assert _same(bad.fate, _judged(bad))
        assert _same(with_bad_body(sealed).fate, _judged(with_bad_body(sealed)))
    for sealed in _sealed(Clock.EARLY):
        assert with_bad_report(sealed) == sealed or not sealed.fate.rejected


def test_the_bytes_are_those_of_the_protocol() -> None:
    """Each batch is what `encode_batch` makes of its reports, each report what `encode_report` makes; ids differ."""
    made = _sealed(Clock.RIGHT)
    ids = set()
    for sealed in made:
        envelope = parse_envelope(decode_json(sealed.body))
        reports = [parse_report(document) for document in envelope.reports]
        assert encode_batch(envelope.batch_id, envelope.until, map(encode_report, reports)) == sealed.body
        for report in reports:
            REGISTRY.metric(report.metric).mechanism.pack(report.data)
        ids.add(envelope.batch_id)
    assert len(ids) == len(made)


def test_each_device_has_a_batch_of_each_period_and_one_answer_of_a_group() -> None:
    """As the SDK seals: hour, day, week, month and once apart; left or right, both of them chosen by somebody."""
    made = _sealed(Clock.RIGHT, count=60)
    assert len(made) == 5 * 60
    names = Counter(document["metric"] for sealed in made for document in json.loads(sealed.body)["reports"])
    assert names["dark_mode"] == names["color"] == names["first_color"] == names["hashed"] == 60
    assert names["left"] + names["right"] == 60
    assert min(names["left"], names["right"]) > 0


def test_shared_batches_hold_the_same_reports_in_fewer_bodies() -> None:
    """Seven devices a batch, and no batch above the protocol's limit."""
    made = _sealed(Clock.RIGHT, count=60, together=7)
    assert len(made) == 5 * 9
    assert sum(len(json.loads(sealed.body)["reports"]) for sealed in made) == 5 * 60
    (day,) = [s for s in _sealed(Clock.RIGHT, 1_500, 2_000, small_registry()) if b"dark_mode" in s.body][:1]
    assert len(json.loads(day.body)["reports"]) == 1_000


def test_people_have_the_same_system_in_all_their_reports() -> None:
    """A dimension is drawn once for a device, not for each of its answers."""
    document = small_document()
    document["metrics"]["other"] = document["metrics"]["color"] | {"description": "Another colour"}
    for sealed in _sealed(Clock.RIGHT, 40, 1, registry_from_document(document)):
        systems = {str(r["dimensions"]) for r in json.loads(sealed.body)["reports"]}
        assert len(systems) == 1


def test_ids_are_random_and_in_the_form_of_the_wire() -> None:
    """Sixteen bytes each, canonical, all different."""
    ids = fresh_ids(1_000)
    raw = {decode_base64url(text, 16) for text in ids}
    assert len(raw) == 1_000
    assert [encode_base64url(decode_base64url(text, 16)) for text in ids] == ids


def test_a_later_day_asks_only_what_was_not_answered() -> None:
    """A week is answered once, `once` on the first day alone, and a window that has closed not at all."""

    def asked(days_ago: int, *, first: bool) -> set[tuple[str, str]]:
        sheets = visit(REGISTRY, NOON, days_ago=days_ago, first=first)
        return {(q.metric.name, q.window.label) for sheet in sheets for slot in sheet.slots for q in slot}

    assert NOON.weekday() == 6
    first = asked(2, first=True)
    assert ("color", "2026-W48") in first
    assert ("first_color", "once") in first
    assert ("left", "2026-11-27T12") in first
    later = asked(1, first=False)
    assert {name for name, _ in later} == {"dark_mode", "left", "right"}
    late_days = REGISTRY.metric("dark_mode").late_days
    assert "dark_mode" not in {name for name, _ in asked(late_days + 1, first=True)}
    assert ("left", "2026-11-26T12") not in asked(3, first=True)
    monday = visit(REGISTRY, NOON + timedelta(days=1), first=False)
    assert "color" in {slot[0].metric.name for sheet in monday for slot in sheet.slots}
