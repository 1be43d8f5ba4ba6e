"""``dither audit`` on the SDK as it is, and on copies of it with one fault each."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dither_cli.exit_codes import SIGNAL_EXIT
from dither_protocol import MECHANISMS
from support import audit_faults
from support.audit_faults import RUN, audit
from support.chaos.mutations import Patch

FEW = (
    "--mechanism",
    "rr",
    "--mechanism",
    "olh",
    "--epsilon",
    "1",
    "--d",
    "4",
    "--reports",
    "100",
    "--collection",
    "fresh",
)
"""Enough for checks that do not look at the law of reports."""


def test_the_sdk_passes() -> None:
    """Every mechanism at two epsilons, small and large domains, and all checks beside; nothing is found."""
    done = audit("--reports", "400")
    assert (done.status, done.found["problems"], done.err) == (0, [], "")
    rows = {(row["mechanism"], row["values"], row["epsilon"]) for row in done.found["mechanisms"]}
    assert {name for name, _, _ in rows} == set(MECHANISMS)
    assert len(rows) == 8 * 4 + 2  # those of memoised metrics are (name, 4, 1) and (name, 4, 2) again
    kinds = [row["kind"] for row in done.found["mechanisms"]]
    assert (kinds.count("one report"), kinds.count("all reports")) == (3, 3)
    for row in done.found["mechanisms"]:
        assert 0 <= row["epsilon_lower_bound"] <= row["epsilon"]
        assert row["reports"] == 400
    assert len(done.found["checks"]) == 5


def test_the_bounds_come_near_to_the_declared_epsilon() -> None:
    """With the reports of one round an audit says something: three mechanisms of different shape prove half of it."""
    names = [word for name in ("oue", "blh", "hadamard") for word in ("--mechanism", name)]
    done = audit("--seconds", "0", "--epsilon", "1", "--d", "4", "--collection", "fresh", *names)
    assert done.status == 0, done.problems
    for row in done.found["mechanisms"]:
        assert 0.5 < row["epsilon_lower_bound"] <= 1 < row["smallest_violation"] <= 1.5
    assert done.found["found_factor"] <= 1.5


@pytest.mark.parametrize("patches", [audit_faults.LOUD, audit_faults.LOUD_WEIGHTS])
def test_one_and_a_half_times_the_epsilon_is_proved_of_each_mechanism(
    patches: tuple[Patch, ...], tmp_path: Path
) -> None:
    """In the samplers alone, or in the weights that p and q come from too, so that the counts agree."""
    options = ("--seconds", "0", "--epsilon", "1", "--d", "4", "--collection", "fresh")
    done = audit(*options, folder=tmp_path, patches=patches)
    assert done.status == 1
    assert len(done.found["mechanisms"]) == len(MECHANISMS)
    for row in done.found["mechanisms"]:
        assert row["epsilon_lower_bound"] > 1, row
        assert row["margin"] < 0


@pytest.mark.parametrize(
    ("patches", "words"),
    [
        (
            audit_faults.RERANDOMISED,
            ["retry and restart", "batches changed between two tries", "more than one version"],
        ),
        (audit_faults.KNOWN_SEED, ["rr: two devices that start alike", "olh: two devices that start alike"]),
        (
            audit_faults.APP_SEED,
            ["rr: two devices that start alike", "another source than the operating system"],
        ),
        (
            audit_faults.CLOCK_SEED,
            ["rr: two devices that start alike", "another source than the operating system"],
        ),
        (
            audit_faults.SYSTEM_SEED,
            ["without asking the operating system", "another source than the operating system"],
        ),
        (audit_faults.SHARED_POOL, ["fork: ", "rr: processes forked from one draw the same noise"]),
        (audit_faults.FORGETFUL, ["answers were taken a second time after the restart"]),
    ],
    ids=[
        "re-randomised",
        "known seed",
        "app's seed",
        "clock's seed",
        "system's seed",
        "shared pool",
        "forgetful",
    ],
)
def test_a_fault_beside_the_law_is_named(
    patches: tuple[Patch, ...], words: list[str], tmp_path: Path
) -> None:
    """Each of these SDKs has reports of the right law, and is refused for what it is."""
    done = audit(*FEW, folder=tmp_path, patches=patches)
    assert done.status == 1, done.err
    for each in words:
        assert each in done.problems


@pytest.mark.parametrize(
    ("patches", "words"),
    [
        (audit_faults.OUTLIVING, ["grr: what reports average to is the same after a new consent"]),
        (audit_faults.BARE, ["grr, one report, 4 values, epsilon 1: the reports prove an epsilon of 1."]),
    ],
    ids=["outliving", "bare"],
)
def test_a_fault_of_memoised_answers_is_named(
    patches: tuple[Patch, ...], words: list[str], tmp_path: Path
) -> None:
    """Permanent answers that outlive a no of the person, or that leave the device as they are."""
    options = ("--collection", "memoized", "--mechanism", "grr", "--seconds", "0")
    done = audit(*options, folder=tmp_path, patches=patches)
    assert done.status == 1, done.err
    for each in words:
        assert each in done.problems


def test_permanent_answers_that_are_drawn_anew_are_found(tmp_path: Path) -> None:
    """Reports average to the truth: that proves more than the permanent epsilon, or a new consent changes nothing."""
    options = ("--collection", "memoized", "--mechanism", "grr", "--seconds", "0")
    done = audit(*options, folder=tmp_path, patches=audit_faults.REDRAWN)
    assert done.status == 1, done.err
    assert "grr, all reports" in done.problems or "the same after a new consent" in done.problems
    assert "one report" not in done.problems


def test_an_sdk_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    """The last lines of the device are shown; the audit itself has no traceback."""
    done = audit(*FEW, folder=tmp_path, patches=audit_faults.CRASHES)
    assert (done.status, done.found) == (1, {})
    assert "the device ended with exit code 1" in done.err
    assert "ZeroDivisionError" in done.err


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + audit_faults.HANG_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_audit_and_all_that_it_started(number: signal.Signals, tmp_path: Path) -> None:
    """No process and no folder is left, and the exit code names the signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "audit"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        children: list[psutil.Process] = []
        _wait_until(lambda: children.extend(psutil.Process(process.pid).children()) or children)
        process.send_signal(number)
        out, err = process.communicate(timeout=audit_faults.HANG_LIMIT_S)
    finally:
        process.kill()
    assert (process.returncode, out) == (SIGNAL_EXIT + number, "")
    assert err == f"dither audit: stopped by {number.name}\n"
    assert not psutil.wait_procs(children, timeout=30)[1]
    assert list(tmp_path.iterdir()) == []
