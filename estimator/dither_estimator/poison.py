"""Poison: entries that end the process that decodes them (design section 8). Pure.

Before a run of entries is decoded, the worker notes where it starts, how many entries it has, how often that was tried
and who it is. What was tried three times is halved, down to a single entry, which is then set aside undecoded. So
whatever an entry does to a worker, it costs a bounded number of restarts and nobody else's reports.

A try counts only where it was the end of the process. What a worker lives through long enough to handle it takes its
note back: a definition that it cannot read, a damaged cell, a store that is away, a fault of its own. Where even that
fails, since the store is away, the worker's name in the note tells that it lives.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

MAX_TRIES: Final = 3
NOBODY: Final = "-"
"""Stands for the owner where every try of an attempt was somebody's end."""


@dataclass(frozen=True)
class Attempt:
    """A run of entries that was begun.

    Attributes:
        checkpoint: where it starts; an attempt from another checkpoint says nothing.
        entries: how many.
        tries: how often it was begun.
        owner: the process that began the last try.
    """

    checkpoint: str
    entries: int
    tries: int
    owner: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The inverse of `text`; None for what is none."""
        parts = text.split(" ")
        if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit() or not parts[3]:
            return None
        return cls(parts[0], int(parts[1]), int(parts[2]), parts[3])

    @property
    def text(self) -> str:
        """The form in which the store keeps it."""
        return f"{self.checkpoint} {self.entries} {self.tries} {self.owner}"

    def settled(self, *, died: bool) -> Self:
        """The same without the last try where its owner did not die of it."""
        return replace(self, tries=self.tries if died else max(0, self.tries - 1), owner=NOBODY)


@dataclass(frozen=True)
class Step:
    """What to do with the entries after a checkpoint.

    Attributes:
        most_entries: how many of them to take; None for as many as one commit may carry.
        tries: how often this run was the end of a worker before.
        set_aside: the run is one entry, and is not to be decoded any more.
    """

    most_entries: int | None = None
    tries: int = 0
    set_aside: bool = False


def next_step(last: Attempt | None, checkpoint: str) -> Step:
    """The next step after ``last``, which is settled; it ended well exactly if the checkpoint has moved on since."""
    if last is None or last.checkpoint != checkpoint:
        return Step()
    if last.tries < MAX_TRIES:
        return Step(last.entries, last.tries)
    if last.entries <= 1:
        return Step(1, last.tries, set_aside=True)
    return Step(last.entries // 2)
