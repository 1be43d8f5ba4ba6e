"""Remembered places: a report is judged as if nothing were remembered, whatever came before it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dither_protocol.wire import Envelope
from dither_server import places
from dither_server.admission import admit
from dither_server.catalogue import Catalogue
from support.server import NOW, TODAY, registry, report

GOOD = report("browser", 4)
HOUR = report("toolbar", "AAA", window="2126-11-29T12")


class _Text(str):
    """Equal to a text, and of another class."""


CHANGED: list[Any] = [
    *({**GOOD, key: value} for key in GOOD for value in (None, True, 1.0, 2.0, [], {}, [1], "x", _Text("x"))),
    *({name: value for name, value in GOOD.items() if name != key} for key in GOOD),
    *({name: value for name, value in {**GOOD, "more": 1}.items() if name != key} for key in GOOD),
    {**GOOD, "more": 1},
    {**GOOD, "version": True},
    {**GOOD, "version": float(GOOD["version"])},
    {**GOOD, "dimensions": [["os", "linux"]]},
    {**GOOD, "dimensions": {"os": ["linux"]}},
    {**GOOD, "dimensions": {"os": "linux", "more": "x"}},
    {**GOOD, "data": 5},
    {**GOOD, "data": -1},
    *("text", 7, None, [], [GOOD], ["metric", "version", "params", "window", "dimensions", "data"]),
]


def _judged(catalogue: Catalogue, document: Any, now: datetime = NOW) -> Any:
    return admit(catalogue, Envelope(bytes(16), TODAY, [document]), now)


@pytest.mark.parametrize("document", CHANGED)
def test_a_report_that_is_not_quite_the_same_is_judged_by_itself(document: Any) -> None:
    """As by a catalogue that has seen nothing; and so is the good one, afterwards."""
    seen = Catalogue(registry())
    assert _judged(seen, GOOD).accepted == 1
    assert _judged(seen, document) == _judged(Catalogue(registry()), document)
    assert _judged(seen, GOOD) == _judged(Catalogue(registry()), GOOD)


def test_the_second_of_a_kind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not looked at again, and has the place of the first, with data of its own."""
    catalogue = Catalogue(registry())
    first = _judged(catalogue, GOOD)
    monkeypatch.setattr("dither_server.admission.parse_report", None)
    assert _judged(catalogue, GOOD) == first
    other = _judged(catalogue, {**GOOD, "data": 0})
    assert (other.accepted, other.entry == first.entry, other.outcomes) == (1, False, first.outcomes)


def test_what_is_wrong_with_data_of_a_known_place_is_accounted_for_there() -> None:
    """Bucket and version are those of the place."""
    catalogue = Catalogue(registry())
    _judged(catalogue, GOOD)
    found = _judged(catalogue, {**GOOD, "data": 99})
    assert found.outcomes == {("browser", GOOD["window"]): {"received": 1, "rejected:payload-invalid": 1}}
    assert found.refused == {("browser", GOOD["version"], "payload-invalid"): 1}


@pytest.mark.parametrize(("good", "step"), [(GOOD, timedelta(hours=1)), (HOUR, timedelta(minutes=5))])
def test_a_place_is_left_when_its_window_closes(good: Any, step: timedelta) -> None:
    """To the moment, and it is not there before the window opens either."""
    catalogue, verdicts = Catalogue(registry()), set()
    assert _judged(catalogue, good).accepted == 1
    for steps in range(-40, 200):
        now = NOW + steps * step
        envelope = Envelope(bytes(16), now.date(), [good])
        found = admit(catalogue, envelope, now)
        assert found == admit(Catalogue(registry()), envelope, now)
        verdicts.add(next(iter(found.outcomes.values())).get("accepted", 0))
    assert verdicts == {0, 1}


def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there would be, all are forgotten and found again."""
    monkeypatch.setattr(places, "_MOST", 2)
    catalogue = Catalogue(registry())
    for _ in range(3):
        for document in (GOOD, HOUR, report(), {**GOOD, "dimensions": {"os": "windows"}}):
            assert _judged(catalogue, document).accepted == 1
            assert len(catalogue.places._known) <= 2
