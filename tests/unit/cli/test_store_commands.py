"""``dither store``: what a store holds, and forgetting, against a real store."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.store_tables import size_text, span_text
from dither_estimator.archive_file import Content, describe
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.storage import Cell
from support.retention import announce_retention, day, index_entry, keys_about
from support.store import Store as Valkey
from support.store import running_store
from support.worker_store import PARTITIONS, append_entry, partition_keys, read_cell

OLD, NEW = 40, 0
DARK = Cell("dark_mode", 1, day(OLD), ())
BROWSER = Cell("browser", 1, day(OLD), (("channel", "beta"), ("os", "linux")))
TODAY = Cell("dark_mode", 1, day(NEW), ())


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """One server for the module."""
    with running_store() as store:
        yield store


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """Old and new reports counted and published, one entry set aside, ids remembered; nothing expires."""
    client = server.client()
    client.flushall()
    client.hset(storage.META_KEY, mapping={"partitions": PARTITIONS, "layout": storage.LAYOUT})
    announce_retention(server)
    for cell in (DARK, BROWSER, TODAY):
        append_entry(server, 0, index_entry(cell, 1, 1, 0))
    append_entry(server, 1, index_entry(BROWSER, 99))
    until = (datetime.now(UTC) + timedelta(days=3)).date().isoformat()
    client.sadd(partition_keys(0).seen(until), *(number.to_bytes(16, "little") for number in range(100)))
    worker = Worker(Store(server.url))
    while worker.tick():
        pass
    return server


def run(*arguments: str, answer: str | None = None) -> Result:
    """`dither store ...` as a person runs it."""
    return CliRunner(env={"COLUMNS": "100"}).invoke(cli, ["store", *arguments], input=answer)


def stats(valkey: Valkey) -> dict[str, Any]:
    """`dither store stats --json`."""
    result = run("stats", "--store", valkey.url, "--json")
    assert result.exit_code == ExitCode.OK, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_stats_say_what_the_store_holds(valkey: Valkey) -> None:
    """Every number is that of the store."""
    append_entry(valkey, 2, index_entry(TODAY, 1))
    found = stats(valkey)
    (node,) = found["nodes"]
    assert (node["limit_bytes"], node["policy"]) == (256 << 20, "noeviction")
    assert node["used_bytes"] > 0
    waiting = found["partitions"][2]
    assert (waiting["entries"], waiting["backlog_bytes"]) == (1, len(index_entry(TODAY, 1)))
    assert waiting["lag_s"] >= 0
    assert [each["dead"] for each in found["partitions"]] == [0, 1, 0, 0]
    assert list(found["partitions"][1]["dead_reasons"].values()) == [1]
    assert {each["counted_by"] for each in found["partitions"]} == {"worker"}
    (seen,) = found["seen"]
    assert (seen["ids"], seen["bytes"] > 1_600) == (100, True)
    metrics = {each["metric"]: each for each in found["metrics"]}
    dark = metrics["dark_mode"]
    assert (dark["windows"], dark["cells"], dark["open"], dark["final"]) == (2, 2, 1, 1)
    assert (
        dark["estimates"] == 2 + 3
    )  # one for each window, and rollups over three lengths that end at the old one
    assert metrics["browser"]["estimates"] == 2 + 3
    assert dark["cell_bytes"] >= 2 * 3 * 8
    assert dark["estimate_bytes"] > 500
    assert metrics["first_use"]["cells"] == 0
    assert not any(each["sampled"] for each in found["metrics"])
    (worker,) = found["workers"]
    assert (worker["name"], worker["partitions"], worker["publishing"]) == ("worker", [0, 1, 2, 3], True)


def test_stats_for_people_name_everything(valkey: Valkey) -> None:
    """Poison is there in red, with its reason; every part has its heading."""
    output = run("stats", "--store", valkey.url).output
    for words in ("memory:", "of 256 MiB", "Partitions", "Metrics", "browser", "Workers", "worker", "100 in"):
        assert words in output, words
    assert "Entries that could not be counted (1)" in output
    assert "1: an index is not in [0, 4)" in output


def test_stats_of_a_large_store_are_a_sample_and_say_so(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for few cells the numbers are scaled: near the truth, and marked."""
    keys = partition_keys(0)
    client = valkey.client()
    for number in range(200):
        label = day(100 + number)
        client.set(keys.cell(Cell("dark_mode", 1, label, ()).name), storage.encode_cell(1, [1, 0]))
        client.sadd(keys.outcomes, f"dark_mode:{label}")
    exact = next(each for each in stats(valkey)["metrics"] if each["metric"] == "dark_mode")
    assert (exact["cells"], exact["sampled"]) == (202, False)
    monkeypatch.setattr("dither_estimator.stats.MAX_CELLS", 20)
    sampled = next(each for each in stats(valkey)["metrics"] if each["metric"] == "dark_mode")
    assert (sampled["cells"], sampled["sampled"]) == (202, True)
    assert sampled["cell_bytes"] == pytest.approx(exact["cell_bytes"], rel=0.2)
    assert "~202" in run("stats", "--store", valkey.url).output


def test_a_dry_run_says_what_would_go_and_changes_nothing(valkey: Valkey) -> None:
    """By the registry's rule; without one there is nothing."""
    assert "what has expired: nothing" in run("prune", "--store", valkey.url, "--dry-run").output
    announce_retention(valkey, dark_mode=30)
    before = valkey.dump()
    result = run("prune", "--store", valkey.url, "--dry-run")
    assert result.exit_code == ExitCode.OK
    assert "what has expired: 1 cell, 1 account of a window, 4 estimates" in result.output
    after = valkey.dump()
    assert {key for key in before if before[key] != after.get(key)} <= {
        key for key in before if b"lease" in key
    }


def test_prune_forgets_what_has_expired_after_asking(valkey: Valkey) -> None:
    """No leaves everything, yes forgets exactly what was said."""
    announce_retention(valkey, dark_mode=30)
    refused = run("prune", "--store", valkey.url, answer="n\n")
    assert refused.exit_code == ExitCode.FAILED
    assert read_cell(valkey, 0, DARK.name) is not None
    result = run("prune", "--store", valkey.url, answer="y\n")
    assert result.exit_code == ExitCode.OK
    assert "forgotten: 1 cell, 1 account of a window, 4 estimates" in result.output
    assert keys_about(valkey, "dark_mode", day(OLD)) == set()
    assert read_cell(valkey, 0, TODAY.name) is not None
    assert read_cell(valkey, 0, BROWSER.name) is not None


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No publisher is at work, so nobody has to be waited for."""
    monkeypatch.setattr("dither_cli.store_commands.PUBLISHER_PAUSE_S", 0.0)


@pytest.mark.usefixtures("unhurried")
def test_prune_forgets_everything_about_a_metric(valkey: Valkey) -> None:
    """Open windows and what was set aside among it; other metrics stay as they are."""
    append_entry(valkey, 1, index_entry(TODAY, 1))
    result = run("prune", "--store", valkey.url, "--metric", "browser", "--yes")
    assert result.exit_code == ExitCode.OK, result.output
    words = "metric browser: 1 cell, 2 accounts of windows, 5 estimates, 1 entry that was set aside"
    assert words in result.output
    assert keys_about(valkey, "browser", day(OLD)) == set()
    assert valkey.client().xlen(partition_keys(1).dead) == 0
    assert read_cell(valkey, 0, DARK.name) == (3, [1, 2])
    assert "reports that are still in the streams are not among it" in result.stderr
    result = run("prune", "--store", valkey.url, "--metric", "dark_mode", "--yes")
    assert read_cell(valkey, 0, TODAY.name) is None
    for key in (storage.published_key("dark_mode"), storage.open_key("dark_mode")):
        assert valkey.client().zcard(key) == 0


def test_prune_before_a_day_leaves_windows_that_still_take_reports(valkey: Valkey) -> None:
    """Closed windows that ended by then go, of all metrics; an open one stays whatever its date."""
    before = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    result = run("prune", "--store", valkey.url, "--before", before, "--yes")
    assert result.exit_code == ExitCode.OK, result.output
    for metric in ("dark_mode", "browser"):
        assert keys_about(valkey, metric, day(OLD)) == set()
    assert read_cell(valkey, 0, TODAY.name) == (3, [1, 2])
    early = run("prune", "--store", valkey.url, "--metric", "dark_mode", "--before", day(OLD), "--dry-run")
    assert "metric dark_mode, before " in early.output


def test_an_unknown_metric_is_an_error_that_names_the_known_ones(valkey: Valkey) -> None:
    """A slip must not look like success."""
    result = run("prune", "--store", valkey.url, "--metric", "dark_mod", "--yes")
    assert result.exit_code == ExitCode.FAILED
    assert "no metric 'dark_mod'; it knows browser, dark_mode, first_use" in result.output


def test_a_clock_that_is_wrong_forgets_nothing(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's clock and this machine's must agree, as for the workers."""
    announce_retention(valkey, dark_mode=30)
    ahead = datetime.now(UTC) + timedelta(days=400)
    monkeypatch.setattr(Store, "now", lambda self: ahead)
    result = run("prune", "--store", valkey.url, "--yes")
    assert result.exit_code == ExitCode.FAILED
    assert "400.0 days apart" in result.output
    assert read_cell(valkey, 0, DARK.name) is not None


def test_where_no_store_answers_it_says_how_to_name_one(tmp_path: Path, server: Valkey) -> None:
    """A state directory without a serve, a socket without a server, a bad URL, an unused store."""
    nowhere = run("stats", "--state-dir", str(tmp_path))
    assert nowhere.exit_code == ExitCode.SERVICE
    assert "no dither serve runs in" in nowhere.output
    assert "--store" in nowhere.output
    (tmp_path / "store.sock").touch()
    silent = run("stats", "--state-dir", str(tmp_path))
    assert silent.exit_code == ExitCode.SERVICE
    assert "does not answer" in silent.output
    bad = run("stats", "--store", "http://u:hunter2@h")
    assert bad.exit_code == ExitCode.USAGE
    assert "hunter2" not in bad.output
    server.client().flushall()
    unused = run("stats", "--store", server.url)
    assert unused.exit_code == ExitCode.SERVICE
    assert "no server has used this store yet" in unused.output


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "0.977 KiB"),
        (1 << 20, "1 MiB"),
        (256 << 20, "256 MiB"),
        (3 << 50, "3,072.000 TiB"),
    ],
)
def test_sizes_have_a_unit(number: int, text: str) -> None:
    """Three digits."""
    assert size_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (59.9, "59.9 s"), (60, "1.0 min"), (3_600, "1.0 h"), (200_000, "2.3 d")],
)
def test_spans_have_a_unit(seconds: float, text: str) -> None:
    """The greatest that fits."""
    assert span_text(seconds) == text


@pytest.mark.usefixtures("unhurried")
def test_prune_forgets_in_the_archive_too(valkey: Valkey, tmp_path: Path) -> None:
    """The same windows, in the folder that is named; a dry run counts its reports."""
    worker = Worker(Store(valkey.url), archive=tmp_path / "archive")
    worker.count()
    for cell in (DARK, TODAY):
        append_entry(valkey, 0, index_entry(cell, 1, 0))
    for _ in range(2):
        worker.count()
        worker.archive(at_once=True)
    announce_retention(valkey, dark_mode=30)
    place = ("--store", valkey.url, "--archive", str(tmp_path / "archive"))
    assert "2 archived reports" in run("prune", *place, "--dry-run").output
    assert "2 archived reports" in run("prune", *place, "--yes").output
    (file,) = (tmp_path / "archive").glob("*.parquet")
    assert describe(file) == [Content("dark_mode", day(NEW), 2)]
    assert "2 archived reports" in run("prune", *place, "--metric", "dark_mode", "--yes").output
    assert list((tmp_path / "archive").glob("*.parquet")) == []
