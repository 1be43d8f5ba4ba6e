"""Memoised collection under audit: what one report proves, what all of a device prove, and what is remembered."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from dither_cli.audit_checks import Check
from dither_cli.audit_children import Children
from dither_cli.audit_device import metric_table
from dither_cli.audit_plan import Case, fair_coins, make_case
from dither_protocol import Mechanism, mechanism
from dither_protocol.mechanisms import Form, memoized

NAMES: Final = ("grr", "sue", "oue")
EPSILON: Final = 1.0
PERMANENT: Final = 2.0
D: Final = 4

AVERAGED: Final = 11
"""Reports of each device; an odd number, so that bits have a majority."""

METRICS: Final = 24
"""So many permanent answers of one mechanism are the same by chance with a probability below 10^-6 after a new consent,
and those of all mechanisms together below 10^-15."""

REMEMBERED: Final = 151
"""Reports from which a permanent answer is read: the majority is wrong with a probability below 10^-10."""

TASK_DEVICES: Final = 400
_WORKERS: Final = 2
ONE_REPORT: Final = "one report"
ALL_REPORTS: Final = "all reports"
_KEPT: Final = "memoised answers: kept over a restart, new after a new consent"


@dataclass(frozen=True)
class MemoCase:
    """One memoised oracle: its first reports, and the majority of all reports, of the same devices."""

    name: str
    one: Case
    every: Case


def make_cases(names: Sequence[str], alpha: float, reports: int | None) -> list[MemoCase]:
    """A pair of cases for each memoised oracle among the names."""
    found = []
    for name in NAMES:
        if name not in names:
            continue
        one = make_case(memoized(name, EPSILON, D, PERMANENT), alpha, reports)
        one.kind = ONE_REPORT
        every = Case(mechanism(name, PERMANENT, D), one.pair, one.goal, kind=ALL_REPORTS, lawful=False)
        found.append(MemoCase(name, one, every))
    return found


def _table(name: str) -> dict[str, Any]:
    return metric_table(name, EPSILON, D) | {
        "collection": "memoized",
        "epsilon_permanent": PERMANENT,
        "max_distinct_values": 1,
    }


def draw_memoized(children: Children, cases: Sequence[MemoCase], progress: Callable[[int], None]) -> None:
    """Draw the goal of every case, AVERAGED reports of each device."""
    with children.pool(_WORKERS) as pool:
        running: list[tuple[MemoCase, str, Future[dict[str, Any]]]] = []
        for memo, devices in _tasks(cases):
            truths = "".join("1" if coin else "0" for coin in fair_coins(devices))
            task = {
                "task": "draw_devices",
                "metric": _table(memo.name),
                "pair": memo.one.pair,
                "truths": truths,
                "hours": AVERAGED,
            }
            running.append((memo, truths, pool.submit(children.device, task)))
        for memo, truths, future in running:
            _take(memo, truths, future.result())
            progress(len(truths) * AVERAGED)


def _tasks(cases: Sequence[MemoCase]) -> Iterator[tuple[MemoCase, int]]:
    for memo in cases:
        for start in range(0, memo.one.goal, TASK_DEVICES):
            yield memo, min(TASK_DEVICES, memo.one.goal - start)


def _take(memo: MemoCase, truths: str, result: dict[str, Any]) -> None:
    if refused := result["refused"]:
        memo.one.trouble.append(f"answers were not taken ({refused[0]})")
    short = sum(len(data) != AVERAGED for data in result["data"])
    if short:
        memo.one.trouble.append(f"{short:,} devices have fewer or more reports than answers")
        return
    made = memo.every.mechanism
    memo.one.take([data[0] for data in result["data"]], truths)
    memo.every.take([majority(made, data) for data in result["data"]], truths)


def majority(made: Mechanism, reports: Sequence[Any]) -> Any:
    """The wire ``data`` that most reports stand for: the most frequent index, or each bit as in most of them.

    It depends on the permanent answer and on fresh noise alone, so it may tell no more than ``epsilon_permanent``.
    """
    if made.form is Form.INDEX:
        counted = Counter(reports)
        return min(counted, key=lambda index: (-counted[index], index))
    rows = [int.from_bytes(made.pack(data), "little") for data in reports]
    bits = sum(1 << v for v in range(made.d) if 2 * sum(row >> v & 1 for row in rows) > len(rows))
    return made.unpack(bits.to_bytes(made.packed_size, "little"))


def remembered(children: Children, names: Sequence[str]) -> Check:
    """A permanent answer is the same after a restart, and another one after a new consent."""
    metrics = {f"{name}_{number}": _table(name) for name in names for number in range(METRICS)}
    state_dir = str(children.folder / "memo")
    task = {"task": "remember", "metrics": metrics, "hours": REMEMBERED, "state_dir": state_dir}
    before = children.device(task | {"from": 0, "renewed": False})
    after = children.device(task | {"from": REMEMBERED, "renewed": True})
    problems = [f"answers were not taken ({said})" for said in [*before["refused"], *after["refused"]][:1]]
    answers = [
        {metric: _permanent(metric, said.get(metric, [])) for metric in metrics}
        for said in (before["data"], after["data"], after["renewed"])
    ]
    for name in names:
        first, later, renewed = (
            [answer[metric] for metric in metrics if metric.split("_")[0] == name] for answer in answers
        )
        changed = sum(one != other for one, other in zip(first, later, strict=True))
        if changed:
            problems.append(f"{name}: {changed:,} of {METRICS} permanent answers changed with a restart")
        if later == renewed:
            problems.append(f"{name}: what reports average to is the same after a new consent")
    return Check(_KEPT, 3 * REMEMBERED * len(metrics), problems)


def _permanent(metric: str, reports: Sequence[Any]) -> Any:
    return majority(mechanism(metric.split("_", maxsplit=1)[0], PERMANENT, D), reports) if reports else None
