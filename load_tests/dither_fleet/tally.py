"""What a run sent and what the server said; tallies of several processes can be added up."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dither_client.transport import Delivered, Outcome, Refused, Retry
from dither_fleet.expectation import Cell, Fate
from dither_fleet.latencies import Latencies

_MUST_NAME_A_TIME: Final = ("http:429", "http:503")


@dataclass
class Tally:
    """Numbers of batches, but where it says otherwise.

    Attributes:
        devices: devices whose batches were made.
        made: by their fate.
        settled: by their fate, which the server's answer has confirmed.
        surprises: answers that the rules do not give, and batches given up, by what they were.
        retries: tries that have to be repeated, by reason.
        untimed: answers 429 or 503 without a Retry-After.
        duplicates: reports in batches that the server said it had before.
        tries: by second of the run and outcome: accepted, duplicate, refused, retry.
        latencies: of tries that ended with 202, from sending to the answer.
        waits: of batches, from the time of their device to their first try: how long they waited for a connection of
            the load generator. Only where devices come at a rate.
    """

    devices: int = 0
    made: Counter[Fate] = field(default_factory=Counter)
    settled: Counter[Fate] = field(default_factory=Counter)
    surprises: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    untimed: int = 0
    duplicates: int = 0
    tries: Counter[tuple[int, str]] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)
    waits: Latencies = field(default_factory=Latencies)

    def merge(self, other: "Tally") -> None:
        """Add another tally."""
        self.devices += other.devices
        self.untimed += other.untimed
        self.duplicates += other.duplicates
        for name in ("made", "settled", "surprises", "retries", "tries"):
            getattr(self, name).update(getattr(other, name))
        self.latencies.merge(other.latencies)
        self.waits.merge(other.waits)

    def note(self, fate: Fate, outcome: Outcome, at_s: float, latency_s: float) -> None:
        """Count one try that was answered, or was not."""
        second = int(at_s)
        match outcome:
            case Delivered():
                word = "duplicate" if outcome.duplicate else "accepted"
                self.latencies.add(at_s, latency_s)
                if outcome.duplicate:
                    self.duplicates += fate.reports
            case Refused():
                word = "refused"
            case Retry():
                word = "retry"
                self.retries[outcome.reason] += 1
                self.untimed += outcome.reason in _MUST_NAME_A_TIME and outcome.after_s is None
            case _:
                word = "refused"
        self.tries[second, word] += 1

    def settle(self, fate: Fate, outcome: Outcome) -> None:
        """Compare a final answer with what it had to be."""
        problem = surprise(fate, outcome)
        if problem:
            self.surprises[problem] += 1
        else:
            self.settled[fate] += 1

    def cells(self) -> Counter[Cell]:
        """Accepted reports by cell."""
        found: Counter[Cell] = Counter()
        for fate, batches in self.settled.items():
            for cell in fate.cells:
                found[cell] += batches
        return found

    def sent_cells(self) -> Counter[Cell]:
        """Unique reports by cell, of all batches that were made: no cell can hold more."""
        found: Counter[Cell] = Counter()
        for fate, batches in self.made.items():
            for cell in fate.cells:
                found[cell] += batches
        return found

    def rejections(self) -> Counter[str]:
        """Rejected reports by reason, each once."""
        found: Counter[str] = Counter()
        for fate, batches in self.settled.items():
            if not fate.refused:
                for reason in fate.rejected:
                    found[reason] += batches
        return found

    def refusals(self) -> Counter[str]:
        """Batches that were refused whole, by reason."""
        found: Counter[str] = Counter()
        for fate, batches in self.settled.items():
            if fate.refused:
                found[fate.refused] += batches
        return found


def surprise(fate: Fate, outcome: Outcome) -> str:
    """What is wrong with a final answer; empty where it is the one that the rules give."""
    match outcome:
        case Delivered(accepted=accepted, duplicate=duplicate, rejected=rejected):
            if fate.refused:
                return f"a batch that had to be refused ({fate.refused}) was accepted"
            if rejected != len(fate.rejected):
                return f"{rejected} reports of a batch were rejected, not {len(fate.rejected)}"
            if accepted != (0 if duplicate else len(fate.cells)):
                return f"{accepted} reports of a batch were accepted, not {len(fate.cells)}"
            return ""
        case Refused(reason=reason):
            return "" if reason == fate.refused else f"a batch was refused: {reason}"
    return f"a batch was given up: {outcome.reason}"
