"""How many reports may be sent with one ingest key.

An ingest key lies open in every copy of an app, so anyone can send made-up reports with it. A quota bounds how many,
and with them how far they can move an estimate. It bounds nothing else: whoever has the key can use the quota up, and
then honest devices wait, with their batches, for the next period. The price of a bound is that it can be reached.

The store counts, so that all processes of all servers share one quota. They do not ask it for each batch: a process
takes a part of the quota at a time and spends that by itself, and one that knows that nothing is left does not ask at
all. So what a quota costs the store does not grow with the traffic. Of what a process has taken, the rest is lost at
the end of the period, at most a `_PARTS`-th of the quota for each process.

Periods are those of the store's clock: a minute from second 0, a day from midnight UTC.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from threading import Lock
from typing import Any, Final

from dither_protocol.storage import quota_key
from dither_protocol.wire import MAX_REPORTS

PERIODS_S: Final = {"minute": 60, "hour": 3_600, "day": 86_400}
"""Lengths of the periods, seconds."""

MOST: Final = 10**12
"""Largest number of reports of a quota: all of it stays exact in Lua, whose numbers are doubles."""

_PARTS: Final = 256
_TEXT: Final = re.compile(r"([1-9][0-9]{0,12})/([a-z]{1,6})", re.ASCII)
_SCRIPT: Final = files("dither_server").joinpath("scripts/quota.lua").read_text("utf-8")
_SPREAD: Final = 10
"""Devices come back within a tenth of the next period, not all at its beginning."""


@dataclass(frozen=True)
class Quota:
    """So many reports in each period; ``str()`` gives what the keys file says.

    Attributes:
        reports: accepted and rejected ones, at least as many as one batch may have, so that no batch can never be sent.
        period: a key of `PERIODS_S`.
    """

    reports: int
    period: str

    def __str__(self) -> str:
        return f"{self.reports}/{self.period}"

    @property
    def period_s(self) -> int:
        """Length of the period, seconds."""
        return PERIODS_S[self.period]

    @property
    def spread_s(self) -> int:
        """Over so many seconds those should be spread that wait for the next period."""
        return self.period_s // _SPREAD


def parse_quota(text: str) -> Quota:
    """Read ``6000/minute``.

    Raises:
        ValueError: it is none; the message says what is.
    """
    found = _TEXT.fullmatch(text)
    if found is None or found[2] not in PERIODS_S:
        raise ValueError("must be such as 6000/minute, with " + ", ".join(PERIODS_S))
    if not MAX_REPORTS <= int(found[1]) <= MOST:
        raise ValueError(f"must be from {MAX_REPORTS:,} reports, as many as a batch may have, to {MOST:,}")
    return Quota(int(found[1]), found[2])


class QuotaExceeded(Exception):
    """Not so much of the quota is left.

    Attributes:
        quota: which.
        ends_in_s: when the next period begins, seconds from now.
    """

    def __init__(self, quota: Quota, ends_in_s: float) -> None:
        super().__init__(f"more than {quota.reports} reports in one {quota.period}")
        self.quota = quota
        self.ends_in_s = ends_in_s


@dataclass(frozen=True)
class Part:
    """What the store gave.

    Attributes:
        period: number of the period by the store's clock.
        reports: how many may be sent; 0 where fewer are left than were needed.
        left: how many are left for others.
        ends_in_s: when the period ends, seconds from the asking.
    """

    period: int
    reports: int
    left: int
    ends_in_s: float


Ask = Callable[[str, Quota, int, int], Part]
"""(key id, quota, least that is of use, as much as is wished for) to what the store gives."""


def ask_store(client: Any, key_id: str, quota: Quota, least: int, wished: int) -> Part:
    """Take a part of a quota, in one round trip.

    Args:
        client: the redis-py client that `dither_server.store` opened.
        key_id: of the ingest key.
        quota: of that key.
        least: fewer than so many are of no use.
        wished: as many as are wished for, where there are.
    """
    name = quota_key(key_id, quota.period)
    given = client.eval(_SCRIPT, 1, name, quota.period_s, quota.reports, least, max(least, wished))
    period, reports, left, ends_in_ms = map(int, given)
    return Part(period, reports, left, ends_in_ms / 1_000)


@dataclass
class _Allowance:
    """What this process may spend of one quota in a period, and what it knows of the rest."""

    quota: Quota
    lock: Lock = field(default_factory=Lock)
    period: int = -1
    reports: int = 0
    left: int = 0
    ends_s: float = 0.0

    def refresh(self, now_s: float) -> None:
        """Once the period is over nothing of it can be spent, and of the next one everything may be left."""
        if now_s >= self.ends_s:
            self.reports, self.left = 0, self.quota.reports

    def add(self, part: Part, now_s: float) -> None:
        """Put to it what the store gave to one that asked at this time."""
        if part.period != self.period:
            self.period, self.reports = part.period, 0
        self.reports += part.reports
        self.left = part.left
        self.ends_s = now_s + part.ends_in_s

    def refusal(self, now_s: float) -> QuotaExceeded:
        """The error at this time."""
        return QuotaExceeded(self.quota, max(0.0, self.ends_s - now_s))


@dataclass(frozen=True)
class Charge:
    """What a batch has spent, and in which period: needed to give it back."""

    allowance: _Allowance
    period: int
    reports: int


class Quotas:
    """The quotas of all ingest keys, as one process spends them. For many threads.

    Args:
        ask: the store.
        clock: monotonic time, seconds.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._allowances: dict[tuple[str, Quota], _Allowance] = {}

    def check(self, key_id: str, quota: Quota | None) -> None:
        """Refuse early, before a body is read, where it is known that nothing is left.

        Raises:
            QuotaExceeded: nothing is left in this period.
        """
        if quota is None:
            return
        allowance = self._allowance(key_id, quota)
        with allowance.lock:
            now_s = self._clock()
            allowance.refresh(now_s)
            if not allowance.reports and not allowance.left:
                raise allowance.refusal(now_s)

    def charge(self, key_id: str, quota: Quota | None, reports: int) -> Charge | None:
        """Spend reports before they are admitted; None where there is no quota.

        Raises:
            QuotaExceeded: fewer are left in this period; nothing is spent.
            Exception: what the store raises; nothing is spent.
        """
        if quota is None:
            return None
        allowance = self._allowance(key_id, quota)
        with allowance.lock:  # while one thread asks, those that need more wait for what it brings
            allowance.refresh(self._clock())
            while reports > allowance.reports:  # twice where a period begins in between
                self._take(key_id, allowance, reports - allowance.reports)
            allowance.reports -= reports
            return Charge(allowance, allowance.period, reports)

    def give_back(self, charge: Charge | None) -> None:
        """The batch was not admitted, or had been before: it costs nothing."""
        if charge is None:
            return
        with charge.allowance.lock:
            if charge.period == charge.allowance.period:
                charge.allowance.reports += charge.reports

    def _allowance(self, key_id: str, quota: Quota) -> _Allowance:
        return self._allowances.setdefault((key_id, quota), _Allowance(quota))

    def _take(self, key_id: str, allowance: _Allowance, missing: int) -> None:
        now_s = self._clock()  # before the asking: the end of the period is never put too late
        if missing > allowance.left:
            raise allowance.refusal(now_s)
        part = self._ask(key_id, allowance.quota, missing, allowance.quota.reports // _PARTS)
        allowance.add(part, now_s)
        if not part.reports:
            raise allowance.refusal(now_s)
