from collections import Counter

from support.chaos.history import KILLS, Kind
from support.chaos.plan import PARTITIONS, RARELY, history
from support.chaos.questions import EVER, EVER_BUCKETS, QUESTIONS, SLOTS, base_time, registry
from support.chaos.sealing import seal

_SEEDS = range(4_000, 4_000 + 4 * RARELY)


def test_a_seed_is_a_history() -> None:
    """The same seed gives the same plan, another one another."""
    assert history(7) == history(7)
    assert history(7) != history(8)


def test_every_history_has_a_kill_and_one_in_thirty_a_full_disk() -> None:
    """Whatever else befalls the fleet, something dies by SIGKILL; any thirty seeds in a row have one full disk."""
    kinds = [{event.kind for event in history(seed).events} for seed in _SEEDS]
    assert all(each & KILLS for each in kinds)
    for first in range(len(_SEEDS) - RARELY):
        assert sum(Kind.FULL_DISK in each for each in kinds[first : first + RARELY]) == 1


def test_everything_that_can_happen_does_happen() -> None:
    """A few dozen seeds have every kind of event."""
    assert {event.kind for seed in _SEEDS for event in history(seed).events} == set(Kind)


def test_each_report_has_a_bucket_of_its_own() -> None:
    """No two reports of a run share a counter, in whatever cell; and the registry has that counter."""
    used: Counter[tuple[str, int]] = Counter()
    for slot, seed in enumerate([*_SEEDS[:20], *_SEEDS[:20]]):
        for number, plan in enumerate(history(seed).batches):
            for report in seal(plan, slot, f"{seed} {slot} {number}").reports:
                used[report.cell, report.bucket] += 1
                assert report.bucket < registry().metric(report.outcome[0]).mechanism.d
    assert set(used.values()) == {1}
    assert QUESTIONS[EVER].buckets >= EVER_BUCKETS * SLOTS


def test_ids_fall_where_they_are_planned_and_are_new_in_each_place() -> None:
    """The same history at two places of a run has the same shape and other ids."""
    plans = history(11).batches
    first = [seal(plan, 0, f"11 0 {number}") for number, plan in enumerate(plans)]
    second = [seal(plan, 5, f"11 5 {number}") for number, plan in enumerate(plans)]
    assert [batch.partition for batch in first] == [plan.partition for plan in plans]
    assert {batch.partition for batch in first} <= set(range(PARTITIONS))
    assert not {batch.batch_id for batch in first} & {batch.batch_id for batch in second}
    lasting = [
        [batch.until - base_time(slot).date() for batch in each] for slot, each in ((0, first), (5, second))
    ]
    assert lasting[0] == lasting[1]
