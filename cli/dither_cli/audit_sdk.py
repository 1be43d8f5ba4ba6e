"""Drawing reports from the installed SDK: cases are cut into tasks, which several devices do at once."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dither_cli.audit_checks import CHECKS, Check
from dither_cli.audit_children import Children
from dither_cli.audit_plan import Case, fair_coins

TASK_REPORTS: Final = 4_000
MAX_REPORTS: Final = 4_000_000
"""No more than these are drawn, however much time there is: they are held in memory."""

_POLL_S: Final = 0.5

Progress = Callable[[int], None]
"""Called with the number of reports that have just come."""


class _Drawn(NamedTuple):
    case: Case
    coins: NDArray[np.bool_]
    result: dict[str, Any]


def sdk_checks(children: Children, names: Sequence[str], progress: Progress) -> list[Check]:
    """Do all checks of `audit_checks`."""
    checks = []
    for check in CHECKS:
        checks.append(check(children, names))
        progress(checks[-1].reports)
    return checks


def draw_cases(children: Children, cases: Sequence[Case], seconds: float, progress: Progress) -> None:
    """Draw the goal of every case, and go round again while there is time.

    When to stop depends on the time alone, never on what was drawn, so that it cannot favour a verdict.

    Args:
        children: runs the devices.
        cases: filled with data, coins and trouble.
        seconds: how long to go on at least; one round is always made.
        progress: told about reports.
    """
    deadline = time.monotonic() + seconds
    first = list(_round(cases))
    tasks = _endless(first, cases, deadline)
    workers = max(1, os.cpu_count() or 1)
    numbers = count()
    with children.pool(workers) as pool:
        running: set[Future[_Drawn]] = set()
        for case, reports in tasks:
            running.add(pool.submit(_draw, children, case, reports, next(numbers)))
            while len(running) > workers:
                running = _collect(running, progress)
        while running:
            running = _collect(running, progress)


def _round(cases: Sequence[Case]) -> Iterator[tuple[Case, int]]:
    for case in cases:
        for start in range(0, case.goal, TASK_REPORTS):
            yield case, min(TASK_REPORTS, case.goal - start)


def _endless(
    first: Sequence[tuple[Case, int]], cases: Sequence[Case], deadline: float
) -> Iterator[tuple[Case, int]]:
    yield from first
    total = sum(reports for _, reports in first)
    while cases:
        for case, reports in _round(cases):
            total += reports
            if time.monotonic() >= deadline or total > MAX_REPORTS:
                return
            yield case, reports


def _draw(children: Children, case: Case, reports: int, number: int) -> _Drawn:
    coins = fair_coins(reports)
    made = case.mechanism
    state_dir = children.folder / f"draw-{number}"
    task = {
        "task": "draw",
        "mechanism": made.name,
        "epsilon": made.epsilon,
        "d": made.d,
        "pair": case.pair,
        "truths": "".join("1" if coin else "0" for coin in coins),
        "state_dir": str(state_dir),
    }
    result = children.device(task)
    shutil.rmtree(state_dir, ignore_errors=True)  # only to save room: the whole folder goes in the end
    return _Drawn(case, coins, result)


def _collect(running: set[Future[_Drawn]], progress: Progress) -> set[Future[_Drawn]]:
    """Take in what is done; what still runs."""
    done, rest = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
    for future in done:
        case, coins, result = future.result()
        progress(coins.size)
        case.trouble += _trouble(result)
        if len(result["data"]) == coins.size:
            case.data += result["data"]
            case.coins.append(coins)
    return rest


def _trouble(result: dict[str, Any]) -> list[str]:
    found = [f"{number:,} answers were not taken ({said})" for said, number in result["refused"].items()]
    if result["missing"]:
        found.append(f"{result['missing']:,} reports never left")
    if result["unexpected"]:
        found.append(f"{result['unexpected']:,} reports left that nobody had asked for")
    return found
