"""What an audit looks at, and how many reports that takes. Pure."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dither_estimator.audit_games import reports_for
from dither_estimator.audit_verdict import Sample, Verdict, judge
from dither_protocol import MECHANISMS, Mechanism, MechanismError, mechanism

FALSE_ALARM: Final = 1e-6
"""Chance that an audit refuses a right program, over all that it compares."""

CASES_SHARE: Final = 0.9
"""Share of it that goes to the cases; the other checks look for coincidences below 10^-12 each."""

FACTOR: Final = 1.5
"""An audit draws at least as many reports as prove a realised epsilon of so many times the declared one."""

EPSILONS: Final = (1.0, 2.0)
DOMAINS: Final = (4, 64)

_COINS: Final = 8


@dataclass
class Case:
    """Reports of one mechanism, as far as they are there.

    Attributes:
        mechanism: the declared one.
        pair: two values, drawn at random, of which devices hold one.
        goal: how many reports one round brings.
        data: the wire data of the reports so far.
        coins: for each of them, whether the device held the first value.
        trouble: what was wrong with the reports as such.
        kind: which reports these are, where they are not all of a fresh metric.
        lawful: whether counts should follow the p and q of the mechanism.
    """

    mechanism: Mechanism
    pair: tuple[int, int]
    goal: int
    data: list[Any] = field(default_factory=list)
    coins: list[NDArray[np.bool_]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    kind: str = ""
    lawful: bool = True

    @property
    def title(self) -> str:
        """Mechanism, size of the domain and epsilon, in words."""
        made = self.mechanism
        return f"{self.name}, {made.d} values, epsilon {made.epsilon:g}"

    @property
    def name(self) -> str:
        """Mechanism and kind of reports."""
        return f"{self.mechanism.name}, {self.kind}" if self.kind else self.mechanism.name

    def take(self, data: Sequence[Any], truths: str) -> None:
        """Add reports; ``truths`` has a 1 where the first value was held."""
        self.data += data
        self.coins.append(np.array([truth == "1" for truth in truths], dtype=np.bool_))

    def verdict(self, alpha: float) -> Verdict | None:
        """Judge the reports; None where they are none of the mechanism's, or there are none. See `trouble`."""
        packed, lists = [], []
        for number, data in enumerate(self.data):
            try:
                wire, listed = wire_form(self.mechanism, data)
                packed.append(self.mechanism.pack(wire))
            except MechanismError as error:
                self.trouble.append(f"report {number}: {error}")
                return None
            lists += [] if listed is None else [listed]
        coins = np.concatenate([np.zeros(0, dtype=np.bool_), *self.coins])
        if not packed or len(packed) != coins.size:
            return None
        ordered = lists if len(lists) == len(packed) else ()
        sample = Sample(self.mechanism, self.pair, b"".join(packed), coins, ordered)
        return judge(sample, alpha, lawful=self.lawful)


def wire_form(made: Mechanism, data: Any) -> tuple[Any, Sequence[int] | None]:
    """The wire ``data`` of a report, and its items in their order where it came as a list of values.

    A bit report may be given as the list of the values that it holds, in whatever order the program has them.

    Raises:
        MechanismError: the items are not distinct values of the domain.
    """
    if not isinstance(data, list) or made.form != "bits":
        return data, None
    if not all(type(item) is int and 0 <= item < made.d for item in data) or len(set(data)) < len(data):
        raise MechanismError(f"a list must hold distinct whole numbers in [0, {made.d})")
    bits = sum(1 << item for item in data).to_bytes(made.packed_size, "little")
    return made.unpack(bits), data


def fair_coins(count: int) -> NDArray[np.bool_]:
    """``count`` tosses of the operating system's."""
    raw = np.frombuffer(secrets.token_bytes((count + _COINS - 1) // _COINS), dtype=np.uint8)
    return np.unpackbits(raw, count=count).astype(np.bool_)


def make_case(made: Mechanism, alpha: float, reports: int | None) -> Case:
    """A case with a random pair of values.

    Args:
        made: the declared mechanism.
        alpha: its chance of a false alarm.
        reports: how many; None for as many as find FACTOR times the declared epsilon.
    """
    first, second = secrets.SystemRandom().sample(range(made.d), 2)
    return Case(made, (first, second), reports or reports_for(made, FACTOR, alpha / 8))


def choose(names: Sequence[str], epsilons: Sequence[float], domains: Sequence[int]) -> list[Mechanism]:
    """Every mechanism with every epsilon and every size of the domain; ``rr`` has two values whatever is asked.

    Raises:
        MechanismError: one of them does not exist.
    """
    return [
        mechanism(name, epsilon, d)
        for name in MECHANISMS
        if name in names
        for d in ((2,) if name == "rr" else domains)
        for epsilon in epsilons
    ]
