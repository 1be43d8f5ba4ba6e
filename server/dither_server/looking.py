"""Looks at the whole ledger, at a price that does not grow with the number of windows.

Each look measures, in each partition and at a moment to which its stream was read (`dither_server.moments`):

- the sums of each metric, as the scripts keep them (`ever`), beside what is in flight: a report that is lost or
  doubled shows at once, whatever its window is;
- the accounts of windows that have reports in flight, and of those that an earlier look found out of balance;
- the next `STEPS` slices of all accounts (``audit.lua``): so every account is compared within some looks, and a loss in
  one window that a surplus in another one makes up for is found as well.

How far the slices came and what they found stands in the store, so that the looks of all processes go on from each
other. ``client`` is the redis-py client that `dither_server.store` opened.
"""

import random
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from dither_protocol.errors import StorageError
from dither_protocol.storage import UNKNOWN, PartitionKeys
from dither_server.admission import Bucket
from dither_server.conservation import Conservation, Terms, View, damaged_account, read_account
from dither_server.measuring import Reading, each_partition, measure
from dither_server.moments import Damaged, Moments, OutOfTime, sound
from dither_server.recent import Recent

STEPS: Final = 3
"""Slices of accounts that a look compares in each partition."""
SLICE: Final = 333
"""Accounts of a slice: the store is held up for one to three milliseconds."""
SAMPLE: Final = 250
"""Of the windows of a partition that have reports in flight, and of those out of balance, so many are read."""

_AT_ONCE: Final = 50
_AUDIT: Final = files("dither_server").joinpath("scripts/audit.lua").read_bytes()
_NOTE: Final = files("dither_server").joinpath("scripts/note.lua").read_bytes()


def read_conservation(
    client: Any,
    partitions: Sequence[PartitionKeys],
    view: View,
    budget_s: float,
    reading: Reading,
) -> Conservation:
    """A look at the whole, where the view is of no metric and no windows; else the accounts of the view."""
    if view.metric is None and view.windows is None:
        return look(client, partitions, view.late_days, budget_s, reading)
    return measure(client, partitions, view, budget_s, reading)


def look(
    client: Any,
    partitions: Sequence[PartitionKeys],
    metrics: Iterable[str],
    budget_s: float,
    reading: Reading,
) -> Conservation:
    """The sums of all metrics, and the accounts that have reports in flight or are out of balance.

    Args:
        client: of the store.
        partitions: their keys.
        metrics: names of the registry; others are known from earlier looks, and from what is in flight.
        budget_s: seconds that it may take. A partition that takes longer is unsettled.
        reading: stands around the reading of a partition.

    Raises:
        StoreUnavailable: no partition could be read.
    """
    total, names = Conservation(), {*metrics, UNKNOWN}

    def one(number: int, keys: PartitionKeys, until: float) -> None:
        found = _Look(client, number, keys, names, until)
        if found.result().imbalance:  # a store that failed over meanwhile has lost nothing: look again
            again = _Look(client, number, keys, names, until)
            found = found if again.result().unsettled else again
        found.note()
        total.add(found.result())

    total.unsettled += each_partition(partitions, budget_s, reading, one)
    total.unsettled.sort()
    return total


class _Look:
    """A look at one partition.

    Args:
        client: of the store.
        number: of the partition.
        keys: of the partition.
        names: of metrics.
        until: monotonic time at which it must have ended.
    """

    def __init__(self, client: Any, number: int, keys: PartitionKeys, names: set[str], until: float) -> None:
        self._client = client
        self._number = number
        self._keys = keys
        self._names = set(names)
        self._moments = Moments(client, keys, until)
        self._found: Conservation | None = None
        self._accounts: dict[Bucket, Terms] = {}
        self._unreadable: set[str] = set()
        self._suspects: set[Bucket] = set()
        self._notes: dict[str, bytes] = {}
        self._now_s = 0

    def result(self) -> Conservation:
        """What was found in time."""
        if self._found is None:
            self._found = found = Conservation()
            try:
                self._read(found)
            except Damaged as damaged:
                found = self._found = Conservation()
                found.damaged(damaged.key)
                found.sums[UNKNOWN] = Terms(imbalance=1)
                self._notes.clear()
            except OutOfTime:
                found = self._found = Conservation(unsettled=[self._number])
                self._notes.clear()
            if self._moments.backlog_bytes is not None:
                found.backlog_bytes[self._number] = self._moments.backlog_bytes
        return self._found

    def note(self) -> None:
        """Let the next look go on from here."""
        found = self.result()
        if found.unsettled:
            return
        out = {bucket for bucket in self._accounts if self._accounts[bucket].imbalance}
        new, gone = out - self._suspects, (self._suspects & self._accounts.keys()) - out
        if new or gone or self._notes:
            fields = [part for pair in self._notes.items() for part in pair]
            arguments = [len(self._notes), *fields, len(new), *map(_member, new), *map(_member, gone)]
            keys = (self._keys.audit, self._keys.suspects)
            with self._client.pipeline(transaction=False) as pipe:
                pipe.execute_command("EVAL", _NOTE, len(keys), *keys, *arguments)
                pipe.execute(raise_on_error=False)  # a store that takes no writes is watched all the same

    def _read(self, found: Conservation) -> None:
        audit, size, suspects = self._moments.read(self._ask_for_notes)
        notes: dict[bytes, bytes] = sound(self._keys.audit, audit)
        self._suspects = {_bucket(member) for member in sound(self._keys.suspects, suspects)}
        recent = Recent(notes)
        self._names |= recent.names
        named = len(self._names)
        wanted = self._suspects | self._audit(notes.get(b"cursor", b"0"), sound(self._keys.outcomes, size))
        flying = [bucket for bucket, reports in self._moments.in_flight.reports.items() if reports]
        still = [bucket for bucket in flying if bucket not in wanted]
        # Many windows are in flight where counting was down: their sums are compared below, and some by themselves.
        wanted |= set(random.sample(still, min(len(still), SAMPLE)))
        order = sorted(wanted)
        for start in range(0, len(order), _AT_ONCE):
            self._judge(order[start : start + _AT_ONCE])
        self._sum_up(found, recent)
        if len(self._names) > named or self._names != recent.names:
            self._notes |= recent.names_note(self._names)

    def _ask_for_notes(self, pipe: Any) -> None:
        pipe.hgetall(self._keys.audit)
        pipe.scard(self._keys.outcomes)
        pipe.srandmember(self._keys.suspects, SAMPLE)

    def _audit(self, cursor: bytes, size: int) -> set[Bucket]:
        """Compare the next slices of accounts; those that have to be looked at one by one."""
        key, prefix = self._keys.outcomes, self._keys.outcome("", "")[:-1]
        begun, found = cursor, set[bytes]()
        for _ in range(min(STEPS, -(-size // SLICE) + 1)):
            self._moments.check_time()
            with self._client.pipeline(transaction=False) as pipe:
                pipe.execute_command("EVAL", _AUDIT, 1, key, cursor, SLICE, prefix)
                cursor, metrics, members, self._now_s = sound(key, pipe.execute(raise_on_error=False)[0])
            self._names.update(metric.decode("utf-8", "replace") for metric in metrics)
            found.update(members)
        if cursor != begun:
            self._notes["cursor"] = cursor
        flying = self._moments.in_flight.reports
        return {bucket for bucket in map(_bucket, found) if not flying.get(bucket)}

    def _judge(self, buckets: Sequence[Bucket]) -> None:
        """Compare some accounts with what is in flight at the same moment."""

        def ask(pipe: Any) -> None:
            for bucket in buckets:
                pipe.hgetall(self._keys.outcome(*bucket))

        for bucket, fields in zip(buckets, self._moments.read(ask), strict=True):
            key, in_flight = self._keys.outcome(*bucket), self._moments.in_flight.reports.get(bucket, 0)
            self._accounts[bucket] = self._terms(key, fields, in_flight)

    def _terms(self, key: str, fields: Any, in_flight: int) -> Terms:
        try:
            return read_account(sound(key, fields), in_flight)
        except (Damaged, StorageError):
            self._unreadable.add(key)
            return damaged_account(in_flight)

    def _sum_up(self, found: Conservation, recent: Recent) -> None:
        """The sums of the metrics at one moment, beside the imbalance of their accounts."""
        names: list[str] = []

        def ask(pipe: Any) -> None:
            names[:] = sorted(self._names | {metric for metric, _ in self._moments.in_flight.reports})
            for name in names:
                pipe.hgetall(self._keys.ever(name))

        hashes = self._moments.read(ask)
        in_flight: dict[str, int] = {}
        for (metric, _), reports in self._moments.in_flight.reports.items():
            in_flight[metric] = in_flight.get(metric, 0) + reports
        ever: dict[str, Terms] = {}
        for name, fields in zip(names, hashes, strict=True):
            key = self._keys.ever(name)
            ever[name] = self._terms(key, fields, in_flight.get(name, 0))
            damaged = key in self._unreadable
            found.sums[name] = ever[name] if damaged else recent.of(name, ever[name])
        # Sums that cannot be read are no base: what is subtracted later must be what there was.
        known = {name: terms for name, terms in ever.items() if self._keys.ever(name) not in self._unreadable}
        self._notes |= recent.notes(self._now_s, known)
        out: dict[str, int] = {}
        for bucket, terms in self._accounts.items():
            if terms.imbalance or terms.in_flight:
                found.accounts[bucket] = terms
            out[bucket[0]] = out.get(bucket[0], 0) + terms.imbalance
        for metric, imbalance in out.items():
            sums = found.sums.setdefault(metric, Terms())
            sums.imbalance = max(sums.imbalance, imbalance)
        found.unreadable += sorted(self._unreadable)


def _bucket(member: bytes) -> Bucket:
    metric, _, window = member.decode("utf-8", "replace").partition(":")
    return metric, window


def _member(bucket: Bucket) -> str:
    return ":".join(bucket)
