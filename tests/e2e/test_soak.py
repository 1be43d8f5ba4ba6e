"""The soak as `make soak` runs it and a crowd as `make crowd` sends it, for some seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dither_cli.parts import example_registry
from dither_fleet.server_view import read_books
from dither_harness.crowd import CrowdPlan, LoadedService, one_batch, shared_out
from dither_harness.crowd_verdict import crowd_document
from dither_harness.service_process import ServiceProcess, running_on
from dither_harness.wrk import run_wrk, wrk_installed

PROCESSES = ["serve", "store", "server master", "server worker 1", "server worker 2", "estimator"]


def _ran(module: str, *options: str) -> str:
    command = [sys.executable, "-m", f"dither_harness.{module}", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_soak_of_some_seconds_passes_and_writes_its_log(tmp_path: Path) -> None:
    """Every process judged, all faults played, an operator served, everything counted, two clean ends."""
    options = ["--minutes", "0.25", "--warm-up", "7", "--rate", "100", "--remembered", "20000"]
    said = _ran("soak", *options, "--out", str(tmp_path))
    text = (tmp_path / "soak.txt").read_text()
    assert "PASS" in text
    assert text in said
    assert str(tmp_path) not in text
    document = json.loads((tmp_path / "soak.json").read_text())
    assert document["passed"] is True
    assert document["exit_codes"] == [0, 0]
    assert {row["process"] for row in document["processes"]} == {*PROCESSES, "store less ids"}
    load = document["load"]
    for line in load["metrics"]:
        assert line["sent"] == line["accepted"] == line["ledger_accepted"] == line["counted"] > 300
    assert load["retries"]["cut"] > 0
    assert load["reports"]["rejected"]["report-too-early"] > 0
    assert document["operator"]["answers"]["200"] > 100
    store = document["store"]
    assert store["ids"][1] > store["ids"][0] > 20_000
    series = document["series"]
    assert len(series["at_s"]) == len(series["rss_mib"]["store"]) > 20


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the load needs a processor of its own")
def test_a_crowd_before_a_small_backlog_is_delivered(tmp_path: Path) -> None:
    """A service on one processor, a crowd on another: 202 and 503 alone, memory bounded, everything counted once."""
    service_cpus, load_cpus = shared_out(sorted(os.sched_getaffinity(0)))
    plan = CrowdPlan(3.0, 2.0, 1, 64, 2, service_cpus, load_cpus)
    environ = {"DITHER_HIGH_WATER_BYTES": "2000"}
    with running_on(load_cpus), LoadedService(plan, tmp_path / "service", environ) as loaded:
        document = crowd_document(loaded.crowd("crowd", capacity=200.0))
    assert document["problems"] == []
    load = document["load"]
    assert load["retries"].keys() == {"http:503"}
    assert {row["process"] for row in document["memory"]} == {*PROCESSES, "store less ids"}
    for line in load["metrics"]:
        assert line["sent"] == line["accepted"] == line["counted"] > 300


@pytest.mark.skipif(not wrk_installed(), reason="wrk is not installed")
def test_wrk_says_what_the_service_takes(tmp_path: Path) -> None:
    """Batches with an id each are all accepted, and stand in the ledger."""
    with ServiceProcess(tmp_path / "state", example_registry()) as service:
        service.wait_ready()
        target = service.target()
        found = run_wrk(target, one_batch(target), 8, 1, tmp_path)
        books = read_books(lambda path, parameters: target.api.get(path, parameters).document())
    assert found.not_accepted == 0
    assert found.requests_per_s > 0
    assert 0 < found.p50_s <= found.p99_s
    for terms in books.terms.values():
        assert terms["duplicate"] == 0
        assert terms["received"] == terms["accepted"]
    assert max(terms["accepted"] for terms in books.terms.values()) >= 0.9 * found.requests_per_s
