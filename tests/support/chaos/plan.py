"""Histories at random, each from its seed alone: the same seed is the same history, on any machine.

Of thirty seeds in a row exactly one has a full disk. Every history has a kill -9.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from support.chaos.history import (
    KILLS,
    Aim,
    Event,
    History,
    Kind,
    PlannedBatch,
    PlannedReport,
    Spoil,
    Wire,
)
from support.chaos.questions import EVER, EVER_BUCKETS, QUESTIONS

PARTITIONS: Final = 4
ESTIMATORS: Final = 2
SERVER_LINK: Final = 0
LENGTH_S: Final = 0.6
"""Events begin within so many seconds; batches come until then, or as long as an event lasts."""
EARLY_S: Final = 0.3
RARELY: Final = 30
"""Of so many seeds in a row, one has a full disk and another a long stop."""
FULL_DISK, LONG_STOP = 0, 15
LONG_STOP_S: Final = 5.6
"""An estimator is stopped in the middle of a commit for longer than its leases live."""
MOST_TRIES: Final = 2
_TRIES: Final = (Kind.KILL_ESTIMATOR, Kind.STOP_ESTIMATOR, Kind.REPLACE_ESTIMATOR)
"""Three ends of workers at one entry make it poison by design: it would be set aside, and rightly so."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_SKEWS: Final = (0, 0, 0, 0, 4 * _MINUTE, -_HOUR, 2 * _HOUR, -_DAY, _DAY)
_CLOCKS: Final = tuple(
    sign * amount
    for amount in (5 * _MINUTE, 45 * _MINUTE, 7 * _HOUR, _DAY, 2 * _DAY, 5 * _DAY)
    for sign in (1, -1)
)

_WEIGHTS: Final[dict[Kind, int]] = {
    Kind.KILL_SERVER_WORKER: 6,
    Kind.KILL_SERVER: 1,
    Kind.KILL_ESTIMATOR: 6,
    Kind.KILL_STORE: 6,
    Kind.TERM_SERVER: 1,
    Kind.ROLL_SERVER: 1,
    Kind.TERM_ESTIMATOR: 2,
    Kind.REPLACE_ESTIMATOR: 6,
    Kind.TERM_STORE: 2,
    Kind.STOP_SERVER_WORKER: 3,
    Kind.STOP_ESTIMATOR: 4,
    Kind.STOP_STORE: 2,
    Kind.CUT_LINK: 4,
    Kind.HANG_LINK: 3,
    Kind.LOSE_REPLIES: 5,
    Kind.HOLD_COMMAND: 5,
    Kind.HOLD_REPLY: 5,
    Kind.CLOCK: 8,
}
_MOST: Final = {
    Kind.REPLACE_ESTIMATOR: 1,
    Kind.KILL_SERVER: 1,
    Kind.TERM_SERVER: 1,
    Kind.ROLL_SERVER: 1,
    Kind.KILL_SERVER_WORKER: 2,
}
_SERVER_SCRIPTS: Final = ("admit",)
_ESTIMATOR_SCRIPTS: Final = ("checkpoint", "entries", "attempt", "cells", "apply", "apply")


def history(seed: int) -> History:
    """The history of a seed."""
    rng = random.Random(seed)  # noqa: S311  a plan, no secret
    events = tuple(sorted(_events(rng, seed % RARELY), key=lambda event: event.at_s))
    ends = max(event.at_s + event.for_s for event in events)
    batches = tuple(sorted(_batches(rng, max(LENGTH_S, ends)), key=lambda batch: batch.at_s))
    return History(seed, batches, events)


def _events(rng: random.Random, place: int) -> list[Event]:
    kills = sorted(KILLS)
    events = []
    counted: Counter[Kind] = Counter()
    if place == LONG_STOP:
        target = rng.randrange(ESTIMATORS)
        events.append(Event(0.1, Kind.STOP_ESTIMATOR, target, LONG_STOP_S, Aim.BEFORE, script="apply"))
        counted[Kind.STOP_ESTIMATOR] = MOST_TRIES  # nothing else may end it meanwhile
        kills.remove(Kind.KILL_ESTIMATOR)
    events.append(_event(rng, rng.choices(kills, [_WEIGHTS[kill] for kill in kills])[0]))
    counted[events[-1].kind] += 1
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5))):
        kind = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        counted[kind] += 1
        if _allowed(counted, kind):
            events.append(_event(rng, kind))
    if place == FULL_DISK:
        events.append(Event(rng.uniform(0.1, 0.4), Kind.FULL_DISK, for_s=rng.uniform(0.2, 0.5)))
    return events


def _allowed(counted: Counter[Kind], kind: Kind) -> bool:
    if kind in _TRIES:
        return sum(counted[each] for each in _TRIES) <= MOST_TRIES
    return counted[kind] <= _MOST.get(kind, 3)


def _event(rng: random.Random, kind: Kind) -> Event:
    make: dict[Kind, Callable[[], dict[str, object]]] = {
        Kind.KILL_SERVER_WORKER: lambda: _aimed(rng, _SERVER_SCRIPTS) | {"target": rng.randrange(2)},
        Kind.KILL_ESTIMATOR: lambda: _aimed(rng, _ESTIMATOR_SCRIPTS) | _restart(rng) | _estimator(rng),
        Kind.KILL_STORE: lambda: _aimed_at_some_link(rng) | _restart(rng),
        Kind.TERM_ESTIMATOR: lambda: _estimator(rng) | _restart(rng),
        Kind.REPLACE_ESTIMATOR: lambda: _replaced(rng),
        Kind.TERM_STORE: lambda: _restart(rng),
        Kind.STOP_SERVER_WORKER: lambda: {"target": rng.randrange(2), "for_s": rng.uniform(0.1, 0.8)},
        Kind.STOP_ESTIMATOR: lambda: (
            _aimed(rng, _ESTIMATOR_SCRIPTS) | _estimator(rng) | {"for_s": rng.uniform(0.1, 1.2)}
        ),
        Kind.STOP_STORE: lambda: {"for_s": rng.choice((0.1, 0.2, 0.3, 1.2))},
        Kind.CUT_LINK: lambda: _link(rng),
        Kind.HANG_LINK: lambda: _link(rng) | {"for_s": rng.choice((0.1, 0.3, 0.5, 1.2))},
        Kind.LOSE_REPLIES: lambda: _link(rng) | {"for_s": rng.uniform(0.02, 0.25)},
        Kind.HOLD_COMMAND: lambda: _held(rng),
        Kind.HOLD_REPLY: lambda: _held(rng),
        Kind.CLOCK: lambda: {"clock_s": rng.choice(_CLOCKS)},
    }
    details = make.get(kind, dict)()
    # What waits for an estimator's command waits up to a second, so it begins early.
    latest = EARLY_S if details.get("script") in _ESTIMATOR_SCRIPTS else LENGTH_S
    return Event(rng.uniform(0.05, latest), kind, **details)  # type: ignore[arg-type]


def _aimed(rng: random.Random, scripts: tuple[str, ...]) -> dict[str, object]:
    aim = rng.choice(list(Aim))
    return {"aim": aim, "script": "" if aim is Aim.NOW else rng.choice(scripts)}


def _aimed_at_some_link(rng: random.Random) -> dict[str, object]:
    link = rng.randrange(1 + ESTIMATORS)
    return _aimed(rng, _scripts(link)) | {"target": link}


def _scripts(link: int) -> tuple[str, ...]:
    return _SERVER_SCRIPTS if link == SERVER_LINK else _ESTIMATOR_SCRIPTS


def _restart(rng: random.Random) -> dict[str, object]:
    return {"for_s": rng.choice((0.0, 0.05, 0.2))}


def _estimator(rng: random.Random) -> dict[str, object]:
    return {"target": rng.randrange(ESTIMATORS)}


def _link(rng: random.Random) -> dict[str, object]:
    return {"target": rng.choice((SERVER_LINK, SERVER_LINK, 1, 2))}


def _held(rng: random.Random) -> dict[str, object]:
    link = rng.randrange(1 + ESTIMATORS)
    return {"target": link, "script": rng.choice(_scripts(link)), "for_s": rng.choice((0.1, 0.4, 0.8, 1.3))}


def _replaced(rng: random.Random) -> dict[str, object]:
    """Long enough for the new one to start and to count."""
    script = rng.choice(("attempt", "cells", "cells", "apply", "apply"))
    aim = rng.choice((Aim.BEFORE, Aim.AFTER))
    return _estimator(rng) | {"aim": aim, "script": script, "for_s": rng.uniform(1.2, 2.4)}


class _Buckets:
    """Gives each report of a history a counter of its own; a report whose cell has none left asks another question."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._free: dict[tuple[object, ...], list[int]] = {}

    def report(self, spoil: Spoil) -> PlannedReport:
        while True:
            name = self._rng.choices(list(QUESTIONS), (8, 8, 8, 4, 1))[0]
            question = QUESTIONS[name]
            step = self._rng.choices(list(question.steps), list(question.steps.values()))[0]
            dimensions = tuple((key, self._rng.choice(values)) for key, values in question.dimensions.items())
            most = EVER_BUCKETS if name == EVER else question.buckets
            if (name, step, dimensions) not in self._free:
                self._free[name, step, dimensions] = self._rng.sample(range(most), most)
            free = self._free[name, step, dimensions]
            if free and not (spoil is Spoil.DIMENSION and not dimensions):
                return PlannedReport(name, step, dimensions, free.pop(), spoil)


def _batches(rng: random.Random, length_s: float) -> list[PlannedBatch]:
    buckets = _Buckets(rng)
    busy = rng.randrange(PARTITIONS)  # where half of them go, so that processes meet there
    return [_batch(rng, buckets, length_s, busy) for _ in range(rng.randrange(12, 33))]


def _batch(rng: random.Random, buckets: _Buckets, length_s: float, busy: int) -> PlannedBatch:
    spoilt = rng.choice((0.0, 0.0, 0.0, 0.1, 0.5, 1.0))
    reports = tuple(
        buckets.report(rng.choice(list(Spoil)[1:]) if rng.random() < spoilt else Spoil.NOTHING)
        for _ in range(rng.choice((1, 2, 3, 5, 8, 12, 20)))
    )
    faults = rng.choices(list(Wire), (6, 1, 1, 2, 1), k=3)
    return PlannedBatch(
        at_s=rng.uniform(0, length_s),
        skew_s=rng.choice(_SKEWS),
        hasty=rng.random() < 0.2,
        partition=rng.choice((busy, rng.randrange(PARTITIONS))),
        reports=reports,
        tries=tuple(faults),
    )
