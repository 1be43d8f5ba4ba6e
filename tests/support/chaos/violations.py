"""What can be wrong after a history."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_TOLD: Final = 60


class Fault(StrEnum):
    """The kinds of damage."""

    DOUBLED = "a report was counted twice"
    LOST = "an acknowledged report is not counted"
    CORRUPT = "a counter where no accepted report went"
    TORN = "a part of a batch is counted"
    WRONG_SUM = "n of a cell is not the sum of its counters"
    UNBALANCED = "the accounts do not add up"
    DEAD = "an entry was set aside"
    BACKLOG = "the backlog is not what the stream holds"
    TAKEN_TWICE = "a batch was taken as new twice"
    WRONG_ANSWER = "an answer that the rules do not give"
    UNPUBLISHED = "what is published is not what was counted"
    STUCK = "not done in time"
    ENDED = "a process ended by itself"


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong, with what was found and what was expected."""

    fault: Fault
    text: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.text}"


def told(found: Sequence[Violation]) -> list[str]:
    """The first of them as lines, and how many there are."""
    return [f"what is wrong ({len(found)}):", *(f"  {violation}" for violation in found[:MOST_TOLD])]
