"""Scenes aimed at one rule each: what a random history may meet, is met here for certain, on any machine.

Sound rooms pass them; rooms in which the rule is broken on purpose (`support.chaos.mutations`) do not.
"""

import asyncio
import signal
from collections.abc import Iterator
from itertools import count

from support.chaos.history import Aim, PlannedBatch, PlannedReport, Wire
from support.chaos.link import Trap
from support.chaos.plan import PARTITIONS
from support.chaos.stage import HANG_LIMIT_S, Stage, until


def _batches(buckets: Iterator[int], *tries: Wire) -> list[PlannedBatch]:
    """A batch for each partition, all reports in one cell of it."""
    reports = [
        tuple(PlannedReport("wide", 0, (), next(buckets)) for _ in range(3)) for _ in range(PARTITIONS)
    ]
    return [PlannedBatch(0.0, 0, False, number, each, tries) for number, each in enumerate(reports)]


async def _overtaken(stage: Stage, script: str, aim: Aim) -> None:
    """One estimator has to wait in the middle of a commit, and meanwhile the other one counts the same partition.

    Both count all partitions here. More arrives before the second one counts, and again before the first goes on.
    """
    slow, fast = stage.fleet.estimators
    buckets = count()
    let_go = asyncio.Event()

    async def hold(_: int) -> bool:
        await let_go.wait()
        return True

    async def send() -> None:
        await asyncio.gather(*map(stage.send, _batches(buckets)))

    fast.signal(signal.SIGSTOP)
    held = Trap(script, aim, hold)
    stage.fleet.links[1].set_trap(held)
    try:
        await send()
        await asyncio.wait_for(held.sprung.wait(), HANG_LIMIT_S)
        stage.strikes.note(f"held: {script}, {aim}")
        await send()
        fast.signal(signal.SIGCONT)
        assert await stage.counted()
        fast.signal(signal.SIGSTOP)
        await send()
    finally:
        stage.strikes.note(f"let go: {script}")
        let_go.set()
    old = slow.leave()
    assert old is not None
    old.terminate()  # it ends what it has begun
    assert await until(lambda: old.poll() is not None, HANG_LIMIT_S), slow.tail()
    fast.signal(signal.SIGCONT)


async def late_apply(stage: Stage) -> None:
    """A worker's apply arrives when another worker has counted the same entries, and more."""
    await _overtaken(stage, "apply", Aim.BEFORE)


async def late_cells(stage: Stage) -> None:
    """A worker learns what the cells hold when another worker has counted into them."""
    await _overtaken(stage, "cells", Aim.AFTER)


async def lost_answers(stage: Stage) -> None:
    """No device sees its first answer, and the second try arrives twice at once."""
    await asyncio.gather(*map(stage.send, _batches(count(), Wire.LOST_ANSWER, Wire.TWICE)))
