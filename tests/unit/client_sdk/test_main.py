"""``python -m dither_client``: what the person at the device sees and decides."""

import json
import sqlite3
from pathlib import Path

import pytest

from dither_client import RecordStatus
from dither_client.__main__ import EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from dither_client.testing import MemoryTransport
from dither_client.transport import Retry
from support.clients import LINUX, make_client, state_bytes
from support.groups import group_document
from support.registries import small_document

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of an app with one sealed batch of one report, and one open report."""
    monkeypatch.setenv("DITHER_STATE_DIR", str(tmp_path))
    made = tmp_path / "test-app"
    registry = small_document(max_epsilon_per_day=10.0)
    client = make_client(MemoryTransport(Retry("http:503", 600.0)), state_dir=made, registry=registry)
    client.record("dark_mode", True)
    client.flush(20)
    client.record("color", "red", LINUX)
    client.shutdown()
    return made


def _run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.usefixtures("folder")
def test_status_says_decision_queue_and_spending(capsys: Captured) -> None:
    """The only state there is needs no name."""
    code, out, _ = _run(capsys, "status")
    assert code == EXIT_OK
    assert out.splitlines() == [
        "project   test-app",
        "decision  none, the app decides",
        "queue     1 batches, 1 reports not in one yet",
        "spent     epsilon 3 for life",
    ]


def test_ledger_shows_every_metric_and_window(folder: Path, capsys: Captured) -> None:
    """With what the registry's limit leaves; what was spent on another day counts for life only."""
    code, out, _ = _run(capsys, "--state-dir", str(folder), "ledger")
    assert code == EXIT_OK
    assert "for life  epsilon 3" in out
    assert "left by the registry's limit" in out
    assert "color: epsilon 2 in 1 reports\n  2026-W48  2" in out
    assert "dark_mode: epsilon 1 in 1 reports\n  2026-11-29  1" in out


def test_ledger_and_explain_show_limits_with_a_delta_and_groups(tmp_path: Path, capsys: Captured) -> None:
    """What is spent at that delta, what may be spent in any case, and which questions share one answer."""
    registry = group_document(privacy={"max_epsilon_lifetime": 10.0, "delta": 1e-6})
    client = make_client(state_dir=tmp_path, registry=registry, exit_timeout_s=0.0)
    client.record("dark_mode", True)
    client.shutdown()
    _, out, _ = _run(capsys, "--state-dir", str(tmp_path), "ledger")
    assert "for life  epsilon 1, 9 left by the registry's limit" in out
    assert "with delta 1e-06: epsilon 1 of 10 for life, by a Renyi filter" in out
    _, out, _ = _run(capsys, "--state-dir", str(tmp_path), "explain", "tab_width")
    assert "answers only one of 3 questions (editor_font, line_length, tab_width)" in out


@pytest.mark.usefixtures("folder")
def test_pending_shows_the_very_bytes(capsys: Captured) -> None:
    """A sealed batch as it will go out, an open report as it will stand in one."""
    transport = MemoryTransport()
    code, out, _ = _run(capsys, "pending")
    assert code == EXIT_OK
    batch, report = out.splitlines()
    assert json.loads(report)["not in a batch yet"]["metric"] == "color"
    assert json.loads(batch)["reports"][0]["metric"] == "dark_mode"
    assert len(transport.bodies) == 0


def test_what_pending_shows_is_what_leaves(folder: Path, capsys: Captured) -> None:
    """The batch goes out byte for byte as it was shown."""
    _, out, _ = _run(capsys, "pending")
    connection = sqlite3.connect(folder / "dither.sqlite3")
    connection.execute("DELETE FROM notes WHERE name IN ('retry at', 'failures')")
    connection.commit()
    connection.close()
    transport = MemoryTransport()
    client = make_client(transport, state_dir=folder)
    assert client.flush(20).pending == 0
    client.shutdown()
    assert out.splitlines()[0].encode() in transport.bodies


@pytest.mark.usefixtures("folder")
def test_explain_puts_one_or_all_metrics_into_words(capsys: Captured) -> None:
    """An unknown name is answered with the known ones."""
    code, one, _ = _run(capsys, "explain", "dark_mode")
    assert code == EXIT_OK
    assert one.startswith("dark_mode\nQuestion: Whether the dark theme is on\n")
    _, all_, _ = _run(capsys, "explain")
    assert one.strip() in all_
    assert all_.count("Question: ") == 3
    code, out, err = _run(capsys, "explain", "nothing")
    assert (code, out) == (EXIT_FAILED, "")
    assert "dark_mode, color, first_color" in err


def test_off_erases_on_allows_again_and_the_ledger_stays(folder: Path, capsys: Captured) -> None:
    """No report is left in any file after off; the app obeys both."""
    assert b'"data"' in state_bytes(folder)
    code, out, _ = _run(capsys, "off")
    assert code == EXIT_OK
    assert "2 reports erased" in out
    assert b'"data"' not in state_bytes(folder)
    assert "decision  no" in _run(capsys, "status")[1]
    assert "spent     epsilon 3 for life" in _run(capsys, "status")[1]
    with make_client(MemoryTransport(), state_dir=folder, consent=True) as client:
        assert client.record("first_color", "red").status is RecordStatus.NOT_CONSENTED
    assert "the app may report" in _run(capsys, "on")[1]
    assert "decision  yes" in _run(capsys, "status")[1]
    with make_client(MemoryTransport(), state_dir=folder, consent=False) as client:
        assert client.record("first_color", "red").status is RecordStatus.QUEUED


def test_forget_erases_the_queue_and_decides_nothing(folder: Path, capsys: Captured) -> None:
    """The decision and the ledger are as they were."""
    code, out, _ = _run(capsys, "forget")
    assert (code, out) == (EXIT_OK, "2 reports erased; the ledger stays\n")
    assert b'"data"' not in state_bytes(folder)
    status = _run(capsys, "status")[1]
    assert "none, the app decides" in status
    assert "0 batches, 0 reports" in status
    assert "epsilon 3 for life" in status


@pytest.mark.parametrize("command", ["status", "ledger", "pending", "explain"])
def test_looking_changes_nothing(folder: Path, command: str, capsys: Captured) -> None:
    """The queue, the ledger and the decision are the same afterwards."""
    tables = ("charges", "totals", "open_reports", "batches", "notes")

    def contents() -> list[object]:
        connection = sqlite3.connect(folder / "dither.sqlite3")
        found = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]  # noqa: S608
        connection.close()
        return found

    before = contents()
    assert _run(capsys, command)[0] == EXIT_OK
    assert contents() == before


def test_which_state_is_meant_must_be_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """None below the platform's place, several of them, or a folder that is none: said, with what to do."""
    monkeypatch.setenv("DITHER_STATE_DIR", str(tmp_path))
    code, out, err = _run(capsys, "status")
    assert (code, out) == (EXIT_USAGE, "")
    assert "no app keeps a state" in err
    for name in ("one", "two"):
        make_client(MemoryTransport(), state_dir=tmp_path / name).shutdown()
    code, _, err = _run(capsys, "status")
    assert code == EXIT_USAGE
    assert "several apps" in err
    assert str(tmp_path / "one") in err
    assert _run(capsys, "--state-dir", str(tmp_path / "two"), "status")[0] == EXIT_OK
    code, _, err = _run(capsys, "--state-dir", str(tmp_path / "three"), "status")
    assert code == EXIT_USAGE
    assert "not a state directory" in err
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize("command", ["status", "ledger", "pending", "explain", "on", "off", "forget"])
def test_a_state_that_cannot_be_read_is_said(tmp_path: Path, command: str, capsys: Captured) -> None:
    """One line, no traceback."""
    (tmp_path / "dither.sqlite3").write_bytes(b"garbage" * 1_000)
    code, out, err = _run(capsys, "--state-dir", str(tmp_path), command)
    assert (code, out) == (EXIT_FAILED, "")
    assert "cannot be used" in err
    assert err.count("\n") == 1


def test_an_app_that_has_not_run_yet_has_nothing_to_explain(tmp_path: Path, capsys: Captured) -> None:
    """A state without a registry: unknown project, no words."""
    make_client(MemoryTransport(), state_dir=tmp_path, registry=None).shutdown()
    assert "project   unknown" in _run(capsys, "--state-dir", str(tmp_path), "status")[1]
    assert _run(capsys, "--state-dir", str(tmp_path), "ledger")[0] == EXIT_OK
    code, _, err = _run(capsys, "--state-dir", str(tmp_path), "explain")
    assert code == EXIT_FAILED
    assert "has not run yet" in err


def test_a_command_is_required(capsys: Captured) -> None:
    """As argparse says it."""
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == EXIT_USAGE
    assert "python -m dither_client" in capsys.readouterr().err
