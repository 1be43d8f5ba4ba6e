"""What a flash crowd must not do, and how large it is."""

from collections import Counter
from typing import Any

import pytest
from click import ClickException

from dither_fleet.expectation import Fate
from dither_fleet.faults import Faults
from dither_fleet.latencies import Latencies
from dither_harness.crowd import Capacity, CrowdPlan, shared_out
from dither_harness.crowd_log import log_text
from dither_harness.crowd_verdict import Crowded, crowd_document, p99_met, phase_rows, problems
from dither_harness.service_watch import Sample
from dither_harness.wrk import WrkFound
from support.service_samples import MIB, RESIDENT, plan, result, sample, samples

PLAN = plan(devices=1_000, profile="flash-crowd", rate=10.0, faults=Faults())


def _crowded(made: Any = sample, **changes: Any) -> Crowded:
    """A run of 100 seconds; the crowd comes at 25 and goes at 60."""
    given: dict[str, Any] = {
        "name": "crowd",
        "result": result(PLAN),
        "samples": samples(120.0, 1.0, made),
        "begins": 0.0,
        "offered": 30.0,
        "generator": 0.5,
        "exit_code": 0,
    }
    return Crowded(**given | changes)


def _latencies(*pairs: tuple[float, float]) -> Latencies:
    found = Latencies()
    for at_s, seconds in pairs:
        found.add(at_s, seconds)
    return found


def test_a_crowd_that_was_told_to_come_back_passes() -> None:
    """202 and 503 alone, everything delivered, memory as it was."""
    crowded = _crowded(result=result(PLAN, retries=Counter({"http:503": 5_000})))
    assert problems(crowded) == []
    assert crowd_document(crowded)["passed"] is True


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"retries": Counter({"http:500": 1})}, "http:500"),
        ({"retries": Counter({"http:429": 1})}, "http:429"),
        ({"retries": Counter({"network:timeout": 2})}, "network:timeout (2 times)"),
        ({"devices": 999}, "1 devices did not come"),
        ({"settled": Counter({Fate(()): 998})}, "2 batches were not delivered"),
    ],
)
def test_any_other_answer_and_any_loss_is_found(changes: dict[str, Any], said: str) -> None:
    """Whatever is neither 202 nor 503, and whatever was not delivered in the end."""
    assert any(said in problem for problem in problems(_crowded(result=result(PLAN, **changes))))


def test_the_verdict_of_the_fleet_and_the_exit_code_count() -> None:
    """A lost report, and a service that did not stop well."""
    assert problems(_crowded(result=result(PLAN, ("lost",)), exit_code=1)) == [
        "lost",
        "dither serve ended with exit code 1",
    ]


@pytest.mark.parametrize("role", RESIDENT)
def test_memory_is_bounded_for_every_process(role: str) -> None:
    """A quarter more at any moment after the crowd has come; of the store only what ids and backlog do not explain."""

    def swollen(at: float) -> Sample:
        return sample(at, {role: RESIDENT[role] * (1.3 if at == 40.0 else 1.0)})

    found = problems(_crowded(swollen))
    assert found == ([] if role == "store" else [f"{role}: memory rose to 1.3 times what it was"])


def test_a_backlog_and_ids_explain_memory_of_the_store_and_nothing_else_does() -> None:
    """By its own account; but for the buffers of some connections."""

    def explained(at: float) -> Sample:
        more = 0 if at < 25 else 5 * MIB
        return sample(at, used_bytes=3 * MIB + 2 * more, ids_bytes=more, backlog_bytes=more)

    def unexplained(at: float) -> Sample:
        return sample(at, used_bytes=3 * MIB if at < 25 else 8 * MIB)

    assert problems(_crowded(explained)) == []
    assert problems(_crowded(unexplained)) == ["store less ids: memory rose to 2.667 times what it was"]


def test_without_a_sample_before_the_crowd_nothing_is_bounded() -> None:
    """Nobody can tell, so the run does not pass."""
    late = [each for each in samples(120.0, 1.0, sample) if each.at > 30]
    found = problems(_crowded(samples=late))
    assert found == [f"{role}: was not seen before the crowd" for role in (*RESIDENT, "store less ids")]


def test_p99_is_that_of_the_crowd_and_of_the_time_until_all_is_delivered() -> None:
    """A slow request before the crowd says nothing; without an accepted one nothing is met."""
    quick = [(second + 0.5, 0.1) for second in range(110)]
    assert p99_met(_crowded(result=result(PLAN, latencies=_latencies((3.0, 9.0), *quick), tries=_tries())))
    slow = [(second + 0.5, 1.2) for second in range(90, 110)]
    assert not p99_met(_crowded(result=result(PLAN, latencies=_latencies(*quick, *slow), tries=_tries())))
    assert not p99_met(_crowded())


def _tries() -> Counter[tuple[int, str]]:
    return Counter({(second, word): 10 for second in range(110) for word in ("accepted", "retry")})


def test_phases_and_the_log_name_what_was_answered() -> None:
    """Before, crowd, after; accepted and 503 per second in each; met or not."""
    tried = result(
        PLAN, tries=_tries(), retries=Counter({"http:503": 1_100}), latencies=_latencies((30.0, 0.2))
    )
    rows = phase_rows(_crowded(result=tried))
    assert {name: row["seconds"] for name, row in rows.items()} == {"before": 25, "crowd": 35, "after": 50}
    assert all(row["accepted"] == row["retry"] == 10 for row in rows.values())
    document = {
        "passed": True,
        "times": 3.0,
        "service_cpus": [0],
        "load_cpus": [1],
        "capacity": Capacity(100.0, []).document(),
        "wrk": [vars(WrkFound(32, 90.0, 0.1, 0.2, 0))],
        "crowds": [crowd_document(_crowded(result=tried, generator=0.95))],
    }
    text = log_text(document)
    for part in (
        "503 1,100, others none",
        "below 1 s",
        ": met",
        "no room",
        "store less ids",
        "100 accepted requests/s",
    ):
        assert part in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_crowd_is_so_many_times_the_capacity() -> None:
    """Whatever its length: three times in the crowd, a quarter of the capacity before and after."""
    given = CrowdPlan(3.0, 30.0, 8, 200, 2, [0], [1])
    crowd = given.crowd(capacity=1_000.0, batches=2)
    schedule = crowd.schedule
    rates = [2 * schedule.rate_at(part * schedule.length_s) for part in (0.1, 0.4, 0.9)]
    assert rates == pytest.approx([250, 3_000, 250])
    assert 0.35 * schedule.length_s == pytest.approx(30.0, rel=1e-3)
    assert crowd.connections == 200


def test_the_better_closed_loop_is_the_capacity() -> None:
    """That of ``wrk`` where it is higher and all of it was accepted; the one over many connections says nothing."""
    many = WrkFound(200, 9_000.0, 0.1, 0.2, 0)
    assert Capacity(100.0, []).requests_per_s == 100.0
    assert Capacity(100.0, [WrkFound(32, 150.0, 0.1, 0.2, 0), many]).requests_per_s == 150.0
    assert Capacity(100.0, [WrkFound(32, 150.0, 0.1, 0.2, 1), many]).requests_per_s == 100.0
    assert Capacity(100.0, [WrkFound(32, 50.0, 0.1, 0.2, 0), many]).document()["by"] == "the fleet"


def test_the_load_has_a_processor_of_its_own() -> None:
    """The last one; with a single one there is no such run."""
    assert shared_out([0, 1]) == ([0], [1])
    assert shared_out([2, 5, 7]) == ([2, 5], [7])
    with pytest.raises(ClickException, match="two processors"):
        shared_out([0])
