"""What a history is: batches that devices send, what the network does to them, and what befalls the fleet.

Pure data, made from a seed by `support.chaos.plan`. Times are seconds from the beginning of the history.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Wire(StrEnum):
    """What the network does to one try of one batch."""

    CLEAN = "clean"
    CUT_REQUEST = "cut-request"
    """The connection breaks before the whole request is there."""
    CUT_ANSWER = "cut-answer"
    """The connection breaks when the request is there; nobody waits for the answer."""
    LOST_ANSWER = "lost-answer"
    """The server answers, and the device never sees it."""
    TWICE = "twice"
    """The request arrives on two connections at once."""


class Kind(StrEnum):
    """What may befall the fleet."""

    KILL_SERVER_WORKER = "kill -9 a gunicorn worker"
    KILL_SERVER = "kill -9 the gunicorn master"
    KILL_ESTIMATOR = "kill -9 an estimator"
    KILL_STORE = "kill -9 the store"
    TERM_SERVER = "restart gunicorn"
    ROLL_SERVER = "rolling restart of gunicorn's workers"
    TERM_ESTIMATOR = "restart an estimator"
    REPLACE_ESTIMATOR = "start an estimator anew while a command of the old one is under way"
    TERM_STORE = "restart the store"
    STOP_SERVER_WORKER = "SIGSTOP a gunicorn worker"
    STOP_ESTIMATOR = "SIGSTOP an estimator"
    STOP_STORE = "SIGSTOP the store"
    CUT_LINK = "cut the connections to the store"
    HANG_LINK = "hold everything that is sent to the store"
    LOSE_REPLIES = "lose replies of the store"
    HOLD_COMMAND = "hold one command to the store"
    HOLD_REPLY = "hold one reply of the store"
    CLOCK = "step the server's clock"
    FULL_DISK = "full disk"


KILLS = frozenset({Kind.KILL_SERVER_WORKER, Kind.KILL_SERVER, Kind.KILL_ESTIMATOR, Kind.KILL_STORE})


class Aim(StrEnum):
    """At which instant an event strikes."""

    NOW = "at once"
    BEFORE = "before the store has the next script"
    AFTER = "after the store has run the next script, before the reply"


class Spoil(StrEnum):
    """What makes the server refuse a report."""

    NOTHING = ""
    METRIC = "unknown metric"
    PARAMS = "wrong params"
    DIMENSION = "unknown dimension"
    WINDOW = "no window"
    PAYLOAD = "no such category"
    SHAPE = "no report"


@dataclass(frozen=True)
class PlannedReport:
    """One report: its metric, its window as steps from the base time's, its dimensions and its bucket."""

    metric: str
    step: int
    dimensions: tuple[tuple[str, str], ...]
    bucket: int
    spoil: Spoil = Spoil.NOTHING


@dataclass(frozen=True)
class PlannedBatch:
    """One batch.

    Attributes:
        at_s: when the device sends it first.
        skew_s: how far the device's clock is ahead; decides ``until``.
        hasty: ``until`` is the device's own day.
        partition: where its id shall fall.
        tries: what the network does to its first tries; the later ones are clean.
    """

    at_s: float
    skew_s: int
    hasty: bool
    partition: int
    reports: tuple[PlannedReport, ...]
    tries: tuple[Wire, ...] = ()


@dataclass(frozen=True)
class Event:
    """One thing that befalls the fleet.

    Attributes:
        at_s: when.
        kind: what.
        target: whom: number of the worker or of the link.
        for_s: how long it stays so, or how long until the restart.
        aim: at which instant, for a kill.
        clock_s: for `Kind.CLOCK`: the server's new time, seconds after the base time.
        script: for what is aimed or held: which command, a key of `support.chaos.link.COMMANDS`.
    """

    at_s: float
    kind: Kind
    target: int = 0
    for_s: float = 0.0
    aim: Aim = Aim.NOW
    clock_s: int = 0
    script: str = ""

    def __str__(self) -> str:
        words = [f"{self.at_s:5.2f} s  {self.kind} {self.target}"]
        if self.kind is Kind.CLOCK:
            words = [f"{self.at_s:5.2f} s  {self.kind} to {self.clock_s:+d} s"]
        if self.aim is not Aim.NOW:
            words.append(str(self.aim))
        if self.script:
            words.append(f"({self.script})")
        if self.for_s:
            words.append(f"for {self.for_s:.2f} s")
        return " ".join(words)


@dataclass(frozen=True)
class History:
    """A seed's batches and events, each in order of time."""

    seed: int
    batches: tuple[PlannedBatch, ...]
    events: tuple[Event, ...] = field(default=())
