"""What a soak makes of what it saw: each thing that must not be is found, and named."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dither_fleet.latencies import Latencies
from dither_harness.service_watch import Sample
from dither_harness.soak_log import log_text, soak_document
from dither_harness.soak_verdict import Looked, Soaked, problems, rows
from support.service_samples import MIB, RESIDENT, plan, result, sample, samples

SECONDS = 900.0


def _soaked(made: Callable[[float], Sample] = sample, **changes: Any) -> Soaked:
    given: dict[str, Any] = {
        "result": result(plan()),
        "samples": samples(SECONDS, 5.0, made),
        "begins": 0.0,
        "seconds": SECONDS,
        "warm_up_s": 180.0,
        "remembered": 0,
        "looked": Looked({200: 100}, {}, Latencies()),
        "exit_codes": [0, 0],
    }
    return Soaked(**given | changes)


def test_a_service_that_stays_as_it_is_passes() -> None:
    """No problem, and every process is said to be flat."""
    soaked = _soaked()
    assert problems(soaked) == []
    document = soak_document(soaked)
    assert document["passed"] is True
    assert [row["process"] for row in document["processes"]] == [*RESIDENT, "store less ids"]
    assert all(row["flat"] for row in document["processes"])


@pytest.mark.parametrize("role", [role for role in RESIDENT if role != "store"])
def test_a_leak_in_any_process_is_found(role: str) -> None:
    """Six per cent between the middles of the fifths, and one name; four per cent are none."""
    for growth, found in ((0.06, [f"{role}: memory grew by 6.0% after the warm-up"]), (0.04, [])):
        mib = RESIDENT[role]

        def leaking(at: float, mib: float = mib, growth: float = growth) -> Sample:
            return sample(at, {role: mib * (1 + growth * (at - 252) / 576)})

        assert problems(_soaked(leaking)) == found


def test_ids_to_be_remembered_are_no_leak_of_the_store() -> None:
    """Its resident memory doubles by them: right for a store that began without, too much for one that had millions."""

    def remembering(at: float) -> Sample:
        size = round(8 * MIB * at / SECONDS)
        ids = {"ids": size // 50, "ids_bytes": size, "used_bytes": 3 * MIB + size}
        return sample(at, {"store": 8.0 + size / MIB}, **ids)

    assert problems(_soaked(remembering)) == []
    (problem,) = problems(_soaked(remembering, remembered=3_000_000))
    assert problem.startswith("store: memory grew by")


def test_what_else_a_store_takes_is_a_leak() -> None:
    """By its own account, less ids and backlog: a MiB in the run; not a third of one, nor a backlog."""

    def leaking(at: float) -> Sample:
        return sample(at, used_bytes=round(MIB * (3 + at / SECONDS)))

    (problem,) = problems(_soaked(leaking))
    assert problem.startswith("store less ids: memory grew by")

    def connected(at: float) -> Sample:
        return sample(at, used_bytes=round(MIB * (3 + 0.3 * at / SECONDS)))

    assert problems(_soaked(connected)) == []

    def behind(at: float) -> Sample:
        return sample(at, used_bytes=3 * MIB + round(at * 1_000), backlog_bytes=round(at * 1_000))

    assert problems(_soaked(behind)) == []


def test_descriptors_that_are_not_closed_are_found() -> None:
    """One in ten seconds; all connections of the load may move to one process and are no leak."""

    def leaking(at: float) -> Sample:
        return sample(at, changes={"server worker 1": {"descriptors": 20 + int(at / 10)}})

    def moved(at: float) -> Sample:
        return sample(at, changes={"server worker 1": {"descriptors": 20 if at < 500 else 24}})

    (problem,) = problems(_soaked(leaking))
    assert problem.startswith("server worker 1: open descriptors grew from 45 to 10")
    assert problems(_soaked(moved)) == []


def test_a_process_that_was_replaced_or_missing_is_found() -> None:
    """Flat or not: it has begun anew."""

    def replaced(at: float) -> Sample:
        return sample(at, changes={"estimator": {"pid": 100 if at < 450 else 200}})

    assert problems(_soaked(replaced)) == ["estimator was replaced while it ran"]

    def missing(at: float) -> Sample:
        found = sample(at)
        if at == 450.0:
            del found.usages["server worker 2"]
        return found

    assert problems(_soaked(missing)) == ["server worker 2 was missing in 1 samples"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exit_codes": [0, 70]}, "exit code 70"),
        ({"looked": Looked({200: 99, 500: 1}, {"/health: 500": 1}, Latencies())}, "/health: 500"),
        ({"looked": Looked({200: 90, 503: 10}, {}, Latencies())}, "503 10 times of 100"),
        ({"result": result(plan(), ("a report was lost",))}, "a report was lost"),
        ({"result": result(plan(), devices=9)}, "1 devices did not come"),
        ({"samples": samples(SECONDS, 200.0, sample)}, "too few samples"),
    ],
)
def test_anything_else_that_must_not_be_is_found(changes: dict[str, Any], said: str) -> None:
    """A wrong exit, a wrong page, an operator turned away, a lost report, a device left out, too few looks."""
    assert any(said in problem for problem in problems(_soaked(**changes)))


def test_a_moment_of_a_slow_store_is_no_fault() -> None:
    """An operator who is turned away once, and a look that the store does not answer."""

    def silent(at: float) -> Sample:
        found = sample(at)
        return Sample(at, found.usages, None) if at == 450.0 else found

    assert problems(_soaked(silent, looked=Looked({200: 99, 503: 1}, {}, Latencies()))) == []


def test_the_log_of_fifteen_minutes_is_small_and_says_all() -> None:
    """Below 100 kB as JSON; as text a row each half minute, each process with its judgement, and the verdict."""
    soaked = _soaked(lambda at: sample(at, {"server worker 1": 92.0 + at / 50}))
    document = soak_document(soaked)
    assert len(json.dumps(document)) < 100_000
    text = log_text(document, rows(soaked), 30.0)
    assert sum(line.startswith(" ") and ":" in line[:7] for line in text.splitlines()) == 30
    assert "server worker 1" in text
    assert "NOT FLAT" in text
    assert text.rstrip().splitlines()[-2:] == [
        "FAIL",
        "- server worker 1: memory grew by 12.0% after the warm-up",
    ]
    assert max(map(len, text.splitlines())) <= 160
