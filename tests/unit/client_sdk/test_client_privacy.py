"""Invariant P1: a raw value exists only inside record(), and nowhere afterwards."""

import gc
import logging
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from dither_client.testing import MemoryTransport
from dither_client.transport import Retry
from dither_protocol.errors import MetricUsageError
from support.clients import LINUX, make_client, state_bytes

_HERE = Path(__file__).parents[2]  # the tests


def _reachable(start: object) -> list[object]:
    """Every object reachable from ``start``, through frames and the SDK's own modules, not through foreign ones."""
    ours = {"dither_client", "dither_protocol"}
    foreign = {
        id(part)
        for name, module in list(sys.modules.items())
        if name.split(".")[0] not in ours
        for part in (module, getattr(module, "__dict__", None))
    }
    seen: dict[int, object] = {}
    todo = [start]
    while todo:
        item = todo.pop()
        if id(item) in seen or id(item) in foreign:
            continue
        if isinstance(item, FrameType) and Path(item.f_code.co_filename).is_relative_to(_HERE):
            continue  # the test's own frames hold the value, as an app's would
        if isinstance(item, ModuleType) and item.__name__.split(".")[0] not in ours:
            continue
        seen[id(item)] = item
        if isinstance(item, FrameType):
            todo.extend(item.f_locals.values())
        if isinstance(item, dict):
            todo.extend(item)  # CPython does not show the collector keys that are texts
        todo.extend(gc.get_referents(item))
    return list(seen.values())


def _holds(start: object, marked: str) -> bool:
    """Whether the text, or bytes with it, can be reached."""
    for item in _reachable(start):
        if isinstance(item, str) and marked in item:
            return True
        if isinstance(item, bytes | bytearray) and marked.encode() in item:
            return True
    return False


def _marked() -> str:
    """A text that stands in no source as it is."""
    return "-".join(["MARKED", "value", "7f3a9c"])


def test_the_search_finds_what_is_kept() -> None:
    """Control: in an attribute, in a queue of bytes, and by way of an exception's traceback."""
    marked = _marked()
    client = make_client(MemoryTransport())
    assert not _holds(client, marked)
    for kept in ([marked], {marked: 1}, [b"x" + marked.encode()]):
        client._kept = kept  # type: ignore[attr-defined]
        assert _holds(client, marked)
    del client._kept  # type: ignore[attr-defined]
    try:
        client.record("color", marked, LINUX)
    except MetricUsageError as error:
        client._kept = error  # type: ignore[attr-defined]
        assert _holds(client, marked)
        del client._kept  # type: ignore[attr-defined]
    assert not _holds(client, marked)
    client.shutdown()


@pytest.mark.parametrize(
    "twist",
    [
        lambda text: text,
        lambda text: text + "\0",
        lambda text: "\ud800" + text,
        lambda text: text * 5_000,
        lambda text: text + "e\u0301",
    ],
    ids=["plain", "nul", "surrogate", "long", "nfd"],
)
def test_a_value_outside_the_domain_is_found_nowhere_afterwards(
    twist: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In no state file, no log record, no part of the exception, and no object that the client leads to."""
    marked = _marked()
    with caplog.at_level(logging.DEBUG):
        client = make_client(MemoryTransport(Retry("http:503", 600.0)), state_dir=tmp_path)
        client.record("dark_mode", True)
        client.flush(20)
        for metric, dimensions in (("color", LINUX), ("dark_mode", None), ("first_color", None)):
            with pytest.raises(MetricUsageError) as caught:
                client.record(metric, twist(marked), dimensions)
            error = caught.value
            parts = [str(error), repr(error), repr(error.args), repr(error.__dict__)]
            parts += [repr(error.__cause__), repr(error.__context__), repr(getattr(error, "__notes__", ""))]
            assert not [part for part in parts if "MARKED" in part]
            del error, caught
        gc.collect()
        assert not _holds(client, "MARKED")
        files = state_bytes(tmp_path)
        assert b"dark_mode" in files
        assert b"MARKED" not in files
        assert "MARKED".encode("utf-16-le") not in files
        client.shutdown()
    assert b"MARKED" not in state_bytes(tmp_path)
    assert "MARKED" not in caplog.text
    assert not _holds([record.__dict__ for record in caplog.records], "MARKED")


def test_a_true_answer_is_no_object_that_the_client_leads_to(tmp_path: Path) -> None:
    """The very text object of the app is let go, in every outcome of record()."""
    client = make_client(MemoryTransport(), state_dir=tmp_path, max_queue_reports=1, delay_s=3600)
    statuses = set()
    for metric, dimensions in (("first_color", None), ("first_color", None), ("color", LINUX)):
        value = "".join(["vio", "let"])
        statuses.add(client.record(metric, value, dimensions))
        assert id(value) not in {id(item) for item in _reachable(client)}
    assert len(statuses) == 3
    client.shutdown()


def test_a_state_that_breaks_during_a_record_keeps_no_way_to_the_value(tmp_path: Path) -> None:
    """Not even the error is kept: its traceback would lead to the frame that holds the value."""
    client = make_client(MemoryTransport(), state_dir=tmp_path)
    client._state.close()
    (tmp_path / "dither.sqlite3").write_bytes(b"garbage" * 1_000)
    value = "".join(["vio", "let"])
    assert client.record("first_color", value).reason == "state"
    assert id(value) not in {id(item) for item in _reachable(client)}
    client.shutdown()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "takes a str"),
        (1, "takes a str"),
        (True, "takes a str"),
        (None, "takes a str"),
        (b"red", "takes a str"),
        (["red"], "takes a str"),
        ("", "none of the categories"),
        ("red\0", "none of the categories"),
        ("\udcff", "none of the categories"),
        ("r" * 100_000, "none of the categories"),
        ("Red", "none of the categories"),
        (" red", "none of the categories"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_is_no_answer_is_refused_in_clear_words(value: Any, words: str) -> None:
    """By type or by domain, naming the metric; nothing is queued or charged."""
    with make_client(MemoryTransport(), delay_s=3600) as client:
        with pytest.raises(MetricUsageError, match=f"'color'.*{words}|{words}.*'color'"):
            client.record("color", value, LINUX)
        assert client.pending() == ([], [])
        assert client.privacy_ledger().spent_lifetime == 0


@pytest.mark.parametrize("value", [0, 1, 1.0, "True", None, float("nan")], ids=str)
def test_a_boolean_takes_true_and_false_only(value: Any) -> None:
    """An int is no bool, and a bool is no int."""
    with make_client(MemoryTransport()) as client, pytest.raises(MetricUsageError, match="True or False"):
        client.record("dark_mode", value)
