"""Conservation (invariant C2): received = counted + duplicate + rejected + dead + in flight.

Pure. Every term is measured by itself: received, accepted, duplicate and rejected by the admit script, counted and
dead by the apply script, in flight from the entries in the stream (`dither_server.in_flight`). This module reads the
accounts, compares, and adds up. An account is what one partition knows about one metric and window; a surplus in one
never makes up for a loss in another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from dither_protocol.errors import StorageError
from dither_protocol.storage import UNKNOWN
from dither_protocol.windows import ONCE, PERIODS, closes_at, window_at
from dither_server.admission import NOWHERE, REJECTED, Bucket
from dither_server.catalogue import Catalogue
from dither_server.selection import Selection, interval, read_selection, refuse_unknown

RECENT: Final = timedelta(days=7)
"""Windows stay in the usual view for so long after they take no more reports."""

LISTED: Final = 1_000
"""So many windows a ledger lists at most, those out of balance before others."""

_PARAMETERS: Final = ("metric", "from", "to")
_WORDS: Final = ("received", "accepted", "counted", "duplicate", "dead")


@dataclass(slots=True)
class Terms:
    """Numbers of reports.

    Attributes:
        received: in batches that were answered 202.
        accepted: of those, the ones that are to be counted.
        counted: the counters contain them.
        duplicate: came again in a batch that was there before.
        rejected: refused, by the word of the reason.
        dead: accepted, and set aside because they could not be counted.
        in_flight: accepted, and still waiting in the stream.
        imbalance: how many of them are missing or too many; 0 where every report is accounted for.
    """

    received: int = 0
    accepted: int = 0
    counted: int = 0
    duplicate: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    dead: int = 0
    in_flight: int = 0
    imbalance: int = 0

    @property
    def gap(self) -> int:
        """By how much the books are out: the larger one of the two gaps, so one lost report counts once."""
        waiting = self.accepted - self.counted - self.dead - self.in_flight
        refused = self.received - self.accepted - self.duplicate - sum(self.rejected.values())
        return max(abs(waiting), abs(waiting + refused))

    def add(self, other: Self) -> None:
        """Add the numbers of another account, imbalance to imbalance."""
        for name in (*_WORDS, "in_flight", "imbalance"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, reports in other.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + reports


def read_account(fields: Mapping[bytes, bytes], in_flight: int) -> Terms:
    """One account beside what is in flight at the same moment.

    Args:
        fields: of its outcome hash; empty where there is none.
        in_flight: reports of its metric and window in the same partition's stream after the checkpoint.

    Raises:
        StorageError: it holds a word or a number that no party of this version wrote.
    """
    terms = Terms(in_flight=in_flight)
    for word, number in ((word.decode("ascii", "replace"), number) for word, number in fields.items()):
        if not number.removeprefix(b"-").isdigit():
            raise StorageError("an account holds what is no number")
        if word.startswith(REJECTED):
            terms.rejected[word.removeprefix(REJECTED)] = int(number)
        elif word in _WORDS:
            setattr(terms, word, int(number))
        else:
            raise StorageError("an account holds an unknown word")
    terms.imbalance = terms.gap
    return terms


def damaged_account(in_flight: int) -> Terms:
    """An account that cannot be read. Nothing is known of its reports, so it is out by one at the least."""
    return Terms(in_flight=in_flight, imbalance=max(1, in_flight))


@dataclass(slots=True)
class Conservation:
    """What was measured, over one partition or several.

    Attributes:
        accounts: terms by (metric, window).
        backlog_bytes: bytes of the entries in the stream, by partition.
        unsettled: partitions that could not be read to the end of their stream in time; nothing of them is in
            ``accounts``.
        unreadable: keys that are damaged. Each is an imbalance of at least one.
        sums: terms by metric, where they were measured by themselves; empty where they are those of ``accounts``.
    """

    accounts: dict[Bucket, Terms] = field(default_factory=dict)
    backlog_bytes: dict[int, int] = field(default_factory=dict)
    unsettled: list[int] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    sums: dict[str, Terms] = field(default_factory=dict)

    @property
    def imbalance(self) -> int:
        """Sum over all metrics."""
        return sum(terms.imbalance for terms in (self.sums or self.accounts).values())

    def account(self, bucket: Bucket) -> Terms:
        """The terms of a metric and window, zero where there is nothing yet."""
        return self.accounts.setdefault(bucket, Terms())

    def damaged(self, key: str) -> None:
        """Book a damaged key that belongs to no account."""
        self.unreadable.append(key)
        self.account(NOWHERE).imbalance += 1

    def add(self, other: Self) -> None:
        """Add what was measured elsewhere."""
        for bucket, terms in other.accounts.items():
            self.account(bucket).add(terms)
        for metric, terms in other.sums.items():
            self.sums.setdefault(metric, Terms()).add(terms)
        self.backlog_bytes |= other.backlog_bytes
        self.unsettled += other.unsettled
        self.unreadable += other.unreadable

    def by_metric(self) -> dict[str, Terms]:
        """The terms of each metric."""
        if self.sums:
            return dict(self.sums)
        found: dict[str, Terms] = {}
        for (metric, _), terms in self.accounts.items():
            found.setdefault(metric, Terms()).add(terms)
        return found


@dataclass(frozen=True)
class Ledger:
    """The conservation ledger as ``GET /v1/ledger`` shows it without parameters.

    Attributes:
        found: what was measured.
        by_metric: terms of each metric, over its windows.
    """

    found: Conservation
    by_metric: dict[str, Terms]

    def terms(self, name: str) -> Terms:
        """The terms of a metric, zero where it has none."""
        return self.by_metric.get(name, Terms())

    @property
    def total(self) -> Terms:
        """The terms of all metrics together."""
        total = Terms()
        for terms in self.by_metric.values():
            total.add(terms)
        return total


@dataclass(frozen=True, slots=True)
class View:
    """Which accounts are asked for.

    Attributes:
        now: aware, in UTC.
        late_days: of each known metric, the most that one of its versions has.
        metric: only this one; None for all.
        windows: only these; None for those that still take reports or did within `RECENT`, and for whatever
            else has reports in flight.
    """

    now: datetime
    late_days: Mapping[str, int]
    metric: str | None = None
    windows: Selection | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str], catalogue: Catalogue, now: datetime) -> Self:
        """Read ``metric``, and ``from`` and ``to`` as for estimates.

        Raises:
            Problem: query-invalid, naming the parameter.
        """
        refuse_unknown(query, _PARAMETERS)
        bounds = {name: query[name] for name in ("from", "to") if name in query}
        late_days = {
            metric.name: max(version.late_days for version in catalogue.versions(metric.name).values())
            for metric in catalogue.registry
        }
        return cls(now, late_days, query.get("metric"), read_selection(bounds) if bounds else None)

    def takes(self, bucket: Bucket) -> bool:
        """Whether an account is asked for. What has no date (``once``, unknown) lies in every range."""
        metric, window = bucket
        if self.metric not in (None, metric):
            return False
        found = interval(window)
        if found is None:
            return True
        if self.windows is None:
            return self.now < closes_at(found, self.late_days.get(metric, 0)) + RECENT
        start, end = self.windows.start, self.windows.end
        return (start is None or start <= found.start) and (end is None or found.start < end)

    @property
    def least_labels(self) -> tuple[str, ...]:
        """Of each period a label: no window before it is asked for. None where windows are named: they may be old."""
        if self.windows is not None:
            return ()
        oldest = self.now - RECENT - timedelta(days=max(self.late_days.values(), default=0))
        return tuple(window_at(period, oldest).label for period in PERIODS if period != ONCE)

    def takes_in_flight(self, bucket: Bucket) -> bool:
        """The same for one that has reports in flight: the usual view leaves none of those out."""
        return self.takes(bucket) or (self.windows is None and self.metric in (None, bucket[0]))


def ledger_document(found: Conservation, view: View, metrics: Sequence[str]) -> dict[str, object]:
    """The answer of ``GET /v1/ledger``.

    Args:
        found: what was measured.
        view: what was asked for.
        metrics: names of the registry, in its order; each has a row, and so has `UNKNOWN`.
    """
    totals = found.by_metric()
    known = [*metrics, *sorted(totals.keys() - {*metrics, UNKNOWN}), UNKNOWN]
    shown = [name for name in known if name in totals or view.metric in (None, name)]
    windows: dict[str, list[dict[str, object]]] = {}
    listed = sorted(sorted(found.accounts), key=lambda bucket: not found.accounts[bucket].imbalance)[:LISTED]
    for metric, window in sorted(listed):
        terms = found.accounts[metric, window]
        windows.setdefault(metric, []).append({"window": window} | asdict(terms))
    return {
        "as_of": view.now,
        "balanced": found.imbalance == 0,
        "imbalance": found.imbalance,
        "unsettled": found.unsettled,
        "unreadable": found.unreadable,
        "windows_left_out": len(found.accounts) - len(listed),
        "metrics": [
            {"metric": name} | asdict(totals.get(name, Terms())) | {"windows": windows.get(name, [])}
            for name in shown
        ],
    }
