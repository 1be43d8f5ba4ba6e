"""Random histories of a whole fleet: whatever dies, every acknowledged report is counted exactly once.

DITHER_CHAOS says how many (30); DITHER_CHAOS_SEED plays one seed again, so many times (`make chaos SEED=...`).
"""

import asyncio
import os
import secrets
import sys
import time

import pytest

from support.chaos.fleet import running_fleet
from support.chaos.plan import RARELY, history
from support.chaos.questions import SLOTS
from support.chaos.run import Run
from support.chaos.violations import told

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its faults are made by Linux")

SEED = os.environ.get("DITHER_CHAOS_SEED", "")
HISTORIES = int(os.environ.get("DITHER_CHAOS", "") or (1 if SEED else 30))
_SHOW_EVERY = 25


def _seeds() -> list[int]:
    """Seeds in a row, so that one in thirty has a full disk; or one seed again and again."""
    if SEED:
        return [int(SEED)] * HISTORIES
    first = secrets.randbelow(10**8)
    return list(range(first, first + HISTORIES))


async def _play(seeds: list[int], summary: list[str]) -> None:
    began = time.monotonic()
    async with running_fleet() as fleet:
        run = Run(fleet)
        for number, seed in enumerate(seeds, 1):
            result = await run.play(history(seed))
            assert result.done["kill -9"], f"seed {seed} killed nothing"
            if result.violations:
                pytest.fail(f"{result}\nplay it again with: make chaos SEED={seed}")
            if number % _SHOW_EVERY == 0:
                print(f"{number} histories, {(time.monotonic() - began) / number:.2f} s each", flush=True)
        violations = await run.finish()
    took_s = time.monotonic() - began
    done = ", ".join(f"{name}: {number}" for name, number in sorted(run.done.items()))
    summary.append(f"chaos: seeds {seeds[0]} to {seeds[-1]}, {took_s / len(seeds):.2f} s each; {done}")
    assert not violations, "\n".join(["at the end of the run", *told(violations)])
    if len(set(seeds)) >= RARELY:
        assert run.done["ends of the store on a full disk"]
        assert run.done["answer: 202 duplicate"]
        assert run.done["balances with reports in flight"]


@pytest.mark.timeout(120 + 30 * HISTORIES)
def test_whatever_dies_every_acknowledged_report_is_counted_exactly_once(summary: list[str]) -> None:
    """No history leaves a counter above one, a counter where nothing went, a lost report, or accounts that differ."""
    seeds = _seeds()
    summary.append(f"chaos: the first seed of {len(seeds)} is {seeds[0]}")
    print(summary[-1], flush=True)
    for first in range(0, len(seeds), SLOTS):
        asyncio.run(_play(seeds[first : first + SLOTS], summary))
