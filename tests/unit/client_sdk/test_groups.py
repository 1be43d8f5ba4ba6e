"""Groups of metrics: one lot per window, kept whatever happens, and charged the largest epsilon."""

import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from dither_client import RecordResult, RecordStatus
from dither_client.groups import drawn as lot_of
from dither_protocol import Registry, registry_from_document
from support.groups import EPSILONS, MEMBERS, Clock, drawn, group_client, group_document, statuses

ALREADY = str(RecordStatus.ALREADY_REPORTED)
NOT_DRAWN = RecordResult(RecordStatus.NOT_DRAWN)


def _lots(folder: Path) -> list[tuple[str, str, str]]:
    with sqlite3.connect(folder / "dither.sqlite3") as connection:
        return connection.execute("SELECT one_of, window, metric FROM draws ORDER BY window").fetchall()


def _lot(connection: sqlite3.Connection, registry: Registry, clock: Clock) -> str:
    """What is drawn among all members for the day of the clock."""
    group = registry.groups["editor"]
    return lot_of(connection, group, group, clock.now.date().isoformat(), clock.now)


def test_one_metric_of_the_group_is_answered_per_window() -> None:
    """Of three members one is queued in each window; a metric outside the group is answered beside it."""
    clock, chosen = Clock(), set()
    with group_client(None, clock) as client:
        for _ in range(40):
            found = statuses(client, *MEMBERS, "dark_mode")
            assert sorted(found.values()) == ["not_drawn", "not_drawn", "queued", "queued"]
            assert found["dark_mode"] == "queued"
            chosen |= {name for name in MEMBERS if found[name] == "queued"}
            clock.now += timedelta(days=1)
        assert chosen == set(MEMBERS)  # by chance not, once in three million runs
        assert client.stats() == {"queued": 80, "not_drawn": 80}


def test_every_report_is_charged_the_largest_epsilon() -> None:
    """Whichever member is drawn: so what is left says nothing about the lot, and the registry's sum is a bound."""
    clock = Clock()
    with group_client(None, clock) as client:
        for day in range(1, 21):
            drawn(client)
            assert client.privacy_ledger().spent_today == max(EPSILONS.values())
            assert client.privacy_ledger().spent_lifetime == day * max(EPSILONS.values())
            clock.now += timedelta(days=1)
    registry = client._source.current
    assert registry is not None
    assert registry.worst_case_per_day() == max(EPSILONS.values()) + 1.0


def test_each_combination_of_dimensions_is_charged_and_shares_the_lot() -> None:
    """The member of the window may be answered once for each combination, and no other member for any."""
    document = group_document(dimensions={"os": ["linux", "macos"]})
    with group_client(None, Clock(), registry=document) as client:
        found = {
            (name, system): client.record(name, True, {"os": system}).status
            for system in ("linux", "macos")
            for name in MEMBERS
        }
        queued = {name for (name, _), status in found.items() if status is RecordStatus.QUEUED}
        assert len(queued) == 1
        assert list(found.values()).count(RecordStatus.QUEUED) == 2
        assert client.privacy_ledger().spent_today == 2 * max(EPSILONS.values())
        registry = client._source.current
        assert registry is not None
        assert registry.worst_case_per_day() == 2 * max(EPSILONS.values()) + 1.0


def test_a_member_that_is_not_drawn_costs_nothing_and_leaves_no_trace(tmp_path: Path) -> None:
    """Nothing in the state changes by asking it, however often: no charge, no report, no answer."""
    with group_client(tmp_path, Clock()) as client:
        first = drawn(client)
        with client._state.transaction() as connection:
            before = list(connection.iterdump())
        others = [name for name in MEMBERS if name != first]
        for value in (True, False) * 5:
            assert [client.record(name, value) for name in others] == [NOT_DRAWN, NOT_DRAWN]
        with client._state.transaction() as connection:
            assert list(connection.iterdump()) == before
        assert set(client.privacy_ledger().metrics) == {first}


def test_the_lot_outlives_restarts(tmp_path: Path) -> None:
    """Whether it has led to a report or not: 20 restarts find the same."""
    clock = Clock()
    for _ in range(5):
        with group_client(tmp_path, clock) as client:
            asked = MEMBERS[0]
            client.record(asked, True)
            ((_, _, chosen),) = [row for row in _lots(tmp_path) if row[1] == clock.now.date().isoformat()]
        for _ in range(4):
            with group_client(tmp_path, clock) as client:
                assert drawn(client) == chosen
        clock.now += timedelta(days=1)


def test_a_forked_child_and_another_client_have_the_same_lot(tmp_path: Path) -> None:
    """They share the state directory, and so the device."""
    clock = Clock()
    for _ in range(8):
        with group_client(tmp_path, clock) as client, group_client(tmp_path, clock) as other:
            first = drawn(client)
            assert statuses(other) == {name: ALREADY if name == first else "not_drawn" for name in MEMBERS}
            child = os.fork()
            if child == 0:
                os._exit(0 if drawn(client) == first else 1)
            assert os.waitpid(child, 0)[1] == 0
        clock.now += timedelta(days=1)


def test_lots_of_closed_windows_are_cleaned_and_come_back_from_the_ledger(tmp_path: Path) -> None:
    """One lot is kept per group; a clock set back finds the metric that was answered then, 20 windows long."""
    clock, answered = Clock(), []
    with group_client(tmp_path, clock) as client:
        for _ in range(20):
            answered.append(drawn(client))
            clock.now += timedelta(days=1)
        assert len(_lots(tmp_path)) == 1
        for name in reversed(answered):
            clock.now -= timedelta(days=1)
            assert statuses(client) == {each: ALREADY if each == name else "not_drawn" for each in MEMBERS}
        assert client.privacy_ledger().spent_lifetime == 20 * max(EPSILONS.values())


def test_a_new_version_of_the_drawn_metric_is_answered_and_no_other_member() -> None:
    """The lot is over metrics by name: raising every version asks the same member once more."""
    clock = Clock()
    with group_client(None, clock) as client:
        first = drawn(client)
        client._source.current = registry_from_document(group_document(version=2))
        assert statuses(client) == {name: "queued" if name == first else "not_drawn" for name in MEMBERS}
        assert client.privacy_ledger().spent_today == 2 * max(EPSILONS.values())


def test_a_version_that_was_answered_is_found_in_the_ledger() -> None:
    """Without the row of the lot every version of a member speaks for it, the newest one and those before."""
    clock, before = Clock(), Clock()
    with group_client(None, clock) as client:
        first = drawn(client)
        client._source.current = newer = registry_from_document(group_document(version=7))
        chosen = ""
        while chosen != first:  # until the newer version was answered, too, in some later window
            clock.now += timedelta(days=1)
            chosen = drawn(client)
        for _ in range(20):
            with client._state.transaction() as connection:
                connection.execute("DELETE FROM draws")
                assert _lot(connection, newer, before) == first


@pytest.mark.parametrize("period", ["hour", "week", "month", "once"])
def test_the_lot_lasts_for_the_window(period: str) -> None:
    """An hour, a week, a month, or for good; the next window draws anew."""
    clock, registry = Clock(), group_document(period)
    with group_client(None, clock, registry=registry) as client:
        first = drawn(client)
        clock.now += timedelta(minutes=59)  # from noon on Sunday, 29 November
        assert statuses(client)[first] == ALREADY
        clock.now += timedelta(days=32)
        again = statuses(client)
        assert list(again.values()).count("queued") == (0 if period == "once" else 1)


def test_a_member_that_may_not_be_answered_is_not_drawn() -> None:
    """One that has expired, or costs more than the app allows, would only take windows from the others."""
    document, clock = group_document(), Clock()
    document["metrics"]["editor_font"]["expires"] = "2026-11-28"
    seen: set[str] = set()
    with group_client(None, clock, registry=document, max_epsilon=1.5) as client:
        for _ in range(30):
            found = statuses(client)
            assert (found["editor_font"], found["tab_width"]) == ("dropped", "dropped")
            assert found["line_length"] == "queued"
            seen |= set(found.values())
            clock.now += timedelta(days=1)
        assert client.privacy_ledger().spent_lifetime == 30 * 1.0


def test_a_refusal_changes_nothing_not_even_the_lot(tmp_path: Path) -> None:
    """A limit that the group's largest epsilon exceeds, and a full queue: no charge, no report, no draw."""
    with group_client(tmp_path / "a", Clock(), max_epsilon_per_day=1.9) as client:
        found = statuses(client)
        assert set(found.values()) <= {"budget_exhausted", "not_drawn"}
        assert client.privacy_ledger().spent_lifetime == 0
    with group_client(tmp_path / "b", Clock(), max_queue_reports=1) as client:
        assert client.record("dark_mode", True).status is RecordStatus.QUEUED
        for _ in range(10):
            results = {client.record(name, True) for name in MEMBERS}
            assert results <= {NOT_DRAWN, RecordResult(RecordStatus.DROPPED, "queue_full")}
        assert client.privacy_ledger().spent_lifetime == 1.0
        assert len(client.pending().reports) == 1


def test_a_member_that_was_answered_and_then_expired_keeps_its_window() -> None:
    """Also where the row of the lot is gone: no other member is answered in its place."""
    clock = Clock()
    with group_client(None, clock, registry=group_document("once")) as client:
        first = drawn(client)
        document = group_document("once")
        document["metrics"][first]["expires"] = "2026-11-28"
        client._source.current = registry_from_document(document)
        with client._state.transaction() as connection:
            connection.execute("DELETE FROM draws")
        assert statuses(client) == {name: "dropped" if name == first else "not_drawn" for name in MEMBERS}


def test_a_lot_without_any_report_is_drawn_again_once_its_row_is_gone(tmp_path: Path) -> None:
    """Nobody has seen anything of it: 40 such draws are not all the same."""
    clock = Clock()
    chosen = set()
    with group_client(tmp_path, clock) as client:
        registry = client._source.current
        assert registry is not None
        for _ in range(40):
            with client._state.transaction() as connection:
                chosen.add(_lot(connection, registry, clock))
                connection.execute("DELETE FROM draws")
    assert chosen == set(MEMBERS)


def test_explain_says_that_one_of_the_group_is_asked_and_what_it_costs() -> None:
    """With the other members and the epsilon that is charged; a metric without a group says nothing of it."""
    with group_client(None, Clock()) as client:
        said = client.explain("editor_font")
        assert "In each day, this device answers only one of 3 questions" in said
        assert "(editor_font, line_length, tab_width)" in said
        assert "charged with the largest epsilon among them, 2." in said
        assert "only one of" not in client.explain("dark_mode")
    with group_client(None, Clock(), registry=group_document("once")) as client:
        assert "Once for all, this device answers only one of 3 questions" in client.explain("tab_width")
