"""The chaos test tested: it finds each fault that it is there for, and finds none where there is none."""

import asyncio
import sys
from pathlib import Path

import pytest

from support.chaos.aimed import late_apply, late_cells, lost_answers
from support.chaos.fleet import running_fleet
from support.chaos.mutations import MUTATIONS, NO_LEASES, Mutation, mutated_rooms
from support.chaos.run import Result, Run
from support.chaos.stage import Scene

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its faults are made by Linux")

CALM_S = 0.5  # nothing but what the scenes send is under way


async def _act(rooms: Path, *scenes: Scene) -> list[Result]:
    async with running_fleet(rooms) as fleet:
        run = Run(fleet, CALM_S)
        return [await run.act(scene.__name__, scene) for scene in scenes]


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_broken_rule_is_found(mutation: Mutation, tmp_path: Path) -> None:
    """One history is enough to see the damage, and it is seen as what it is."""
    rooms = mutated_rooms(tmp_path, mutation.patches)
    (result,) = asyncio.run(_act(rooms, mutation.scene))
    assert mutation.faults <= {violation.fault for violation in result.violations}, str(result)


def test_sound_rooms_pass_the_same_histories(tmp_path: Path) -> None:
    """Even where leases give every partition to both workers, the compare-and-set alone keeps the counts right."""
    results = asyncio.run(_act(mutated_rooms(tmp_path, NO_LEASES), late_cells, late_apply, lost_answers))
    for result in results:
        assert not result.violations, str(result)
