"""Compares what the store holds with what must have become of every report of a run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dither_protocol.storage import (
    ENTRY_FIELD,
    PartitionKeys,
    decode_cell,
    decode_entry,
    parse_cell,
    partition_tags,
)
from support.chaos.expectation import Bounds, bounds, together
from support.chaos.network import ACCEPTED, Device
from support.chaos.plan import PARTITIONS
from support.chaos.sealing import NOWHERE
from support.chaos.violations import Fault, Violation

KEYS: Final = tuple(PartitionKeys(tag) for tag in partition_tags(PARTITIONS))
Place = tuple[int, str]
"""(partition, name of the cell)."""
Outcome = tuple[str, str]
"""(metric, window)."""


@dataclass
class Group:
    """Reports of one batch that are counted together or not at all: their counters."""

    batch: str
    counters: list[tuple[Place, int]]


@dataclass
class Expected:
    """What a run expects by now.

    Attributes:
        counters: bounds of each counter that a report was sent to, by place and bucket; all others are 0.
        places: the cells behind each account.
        groups: what must not be torn.
        duplicates: reports in answers that call their batch a duplicate.
        acknowledged: reports in all answers that take their batch.
    """

    counters: dict[Place, dict[int, Bounds]] = field(default_factory=lambda: defaultdict(dict))
    places: dict[Outcome, set[Place]] = field(default_factory=lambda: defaultdict(set, {NOWHERE: set()}))
    groups: list[Group] = field(default_factory=list)
    duplicates: int = 0
    acknowledged: int = 0

    def add(self, device: Device, clocks: Sequence[datetime]) -> set[Outcome]:
        """Take a batch in; the accounts that it may have changed."""
        batch = device.batch
        for report, bound in zip(batch.reports, bounds(device, clocks), strict=True):
            place = (batch.partition, report.cell)
            self.counters[place][report.bucket] = bound
            self.places[report.outcome].add(place)
        group = [batch.reports[n] for n in together(device, clocks)]
        self.groups.append(
            Group(batch.batch_id.hex(), [((batch.partition, report.cell), report.bucket) for report in group])
        )
        taken = [made for made in device.tries if made.status == ACCEPTED]
        self.acknowledged += len(taken) * len(batch.reports)
        self.duplicates += sum(made.duplicate for made in taken) * len(batch.reports)
        return {report.outcome for report in batch.reports} | {NOWHERE}


def waiting(client: Any) -> int:
    """Number of entries in all streams."""
    with client.pipeline(transaction=False) as pipe:
        for keys in KEYS:
            pipe.xlen(keys.stream)
        return sum(pipe.execute())


def audit(client: Any, expected: Expected, outcomes: Iterable[Outcome]) -> list[Violation]:
    """All that is wrong with these accounts and their cells, with the streams, and with what was set aside."""
    chosen = sorted(outcomes)
    cells = _cells(client, sorted({place for outcome in chosen for place in expected.places[outcome]}))
    flight = _in_flight(client)
    found = list(_streams(client))
    for place, packed in cells.items():
        found += _cell(place, packed, expected.counters[place])
    found += _torn(cells, expected.groups)
    found += _accounts(_read_accounts(client, chosen), cells, flight)
    return found


def counted(client: Any, expected: Expected) -> dict[Outcome, int]:
    """Reports in the cells of each metric and window of a run."""
    found = {}
    for outcome, places in expected.places.items():
        cells = _cells(client, sorted(places)).values()
        found[outcome] = sum(decode_cell(packed)[0] for packed in cells if packed is not None)
    return {outcome: n for outcome, n in found.items() if n}


def audit_all(client: Any, expected: Expected) -> list[Violation]:
    """The same over a whole run; and cells that nobody named, and answers that are in no account."""
    found = audit(client, expected, expected.places)
    accounts = _read_accounts(client, sorted(expected.places))
    for word, answered in (("received", expected.acknowledged), ("duplicate", expected.duplicates)):
        booked = sum(words[word] for words in accounts.values())
        if booked < answered:
            found.append(Violation(Fault.UNBALANCED, f"{word} {booked}, but the answers speak of {answered}"))
    return found + _strange_cells(client, expected)


def _strange_cells(client: Any, expected: Expected) -> list[Violation]:
    found = []
    for partition, keys in enumerate(KEYS):
        prefix = keys.cell("")
        for key in client.scan_iter(match=prefix + "*", count=10_000):
            name = key.decode().removeprefix(prefix)
            if (partition, name) not in expected.counters:
                found.append(
                    Violation(Fault.CORRUPT, f"cell {name} in partition {partition}: no report names it")
                )
    return found


def _cells(client: Any, places: list[Place]) -> dict[Place, bytes | None]:
    with client.pipeline(transaction=False) as pipe:
        for partition, name in places:
            pipe.get(KEYS[partition].cell(name))
        return dict(zip(places, pipe.execute(), strict=True))


def _cell(place: Place, packed: bytes | None, allowed: Mapping[int, Bounds]) -> Iterator[Violation]:
    where = f"cell {place[1]} in partition {place[0]}"
    n, counters = decode_cell(packed) if packed is not None else (0, ())
    if n != sum(counters):
        yield Violation(Fault.WRONG_SUM, f"{where}: n is {n}, the counters add up to {sum(counters)}")
    counted = {bucket: count for bucket, count in enumerate(counters) if count}
    for bucket in sorted(counted.keys() | allowed.keys()):
        count, bound = counted.get(bucket, 0), allowed.get(bucket)
        if bound is None or count > bound.most:
            fault = Fault.DOUBLED if bound is not None and bound.most else Fault.CORRUPT
            most = bound.most if bound is not None else 0
            yield Violation(fault, f"{where}: counter {bucket} is {count}, at most {most} expected")
        elif count < bound.least:
            yield Violation(Fault.LOST, f"{where}: counter {bucket} is {count}, {bound.least} expected")


def _torn(cells: Mapping[Place, bytes | None], groups: Iterable[Group]) -> Iterator[Violation]:
    for group in groups:
        if any(place not in cells for place, _ in group.counters):
            continue  # another history's
        counts = []
        for place, bucket in group.counters:
            packed = cells[place]
            counts.append(decode_cell(packed)[1][bucket] if packed is not None else 0)
        if 0 < sum(count > 0 for count in counts) < len(counts):
            yield Violation(Fault.TORN, f"batch {group.batch}: counters {counts}")


def _in_flight(client: Any) -> Counter[Outcome]:
    """Reports in the streams by outcome: measured from the entries themselves."""
    found: Counter[Outcome] = Counter()
    for keys in KEYS:
        found += _reports(client.xrange(keys.stream))
    return found


def _reports(entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> Counter[Outcome]:
    found: Counter[Outcome] = Counter()
    for _, fields in entries:
        for name, _, reports, _ in decode_entry(fields[ENTRY_FIELD]):
            cell = parse_cell(name)
            found[cell.metric, cell.window] += reports
    return found


def _words(answer: Mapping[bytes, bytes]) -> Counter[str]:
    return Counter({word.decode(): int(number) for word, number in answer.items()})


def _streams(client: Any) -> Iterator[Violation]:
    for partition, keys in enumerate(KEYS):
        held = sum(len(fields[ENTRY_FIELD]) for _, fields in client.xrange(keys.stream))
        backlog = int(client.get(keys.backlog) or 0)
        if backlog != held:
            yield Violation(
                Fault.BACKLOG, f"partition {partition}: backlog {backlog}, the stream holds {held} bytes"
            )
        for entry_id, fields in client.xrange(keys.dead):
            reason = fields.get(b"reason", b"").decode()
            yield Violation(Fault.DEAD, f"partition {partition}: {entry_id.decode()}, {reason}")


def _accounts(
    accounts: Mapping[Outcome, Counter[str]], cells: Mapping[Place, bytes | None], flight: Counter[Outcome]
) -> Iterator[Violation]:
    in_cells: Counter[Outcome] = Counter()
    for (_, name), packed in cells.items():
        cell = parse_cell(name)
        in_cells[cell.metric, cell.window] += decode_cell(packed)[0] if packed is not None else 0
    for outcome, words in accounts.items():
        yield from _balance(outcome, words, flight[outcome])
        if words["counted"] != in_cells[outcome]:
            where = f"{outcome[0]} {outcome[1]} {dict(words)}"
            yield Violation(Fault.UNBALANCED, f"{where}: the cells hold {in_cells[outcome]}")


def _balance(outcome: Outcome, words: Counter[str], flight: int) -> Iterator[Violation]:
    """C2: received = counted + duplicate + rejected + dead + in flight, every term from its own source."""
    rejected = sum(number for word, number in words.items() if word.startswith("rejected:"))
    taken = words["received"] - words["duplicate"] - rejected
    if taken != words["accepted"] or taken != words["counted"] + words["dead"] + flight:
        yield Violation(Fault.UNBALANCED, f"{outcome[0]} {outcome[1]} {dict(words)}, in flight {flight}")


def balance_now(client: Any, outcomes: Iterable[Outcome]) -> tuple[list[Violation], int]:
    """What does not add up at this instant, whatever is under way; and how many reports are in the streams.

    Each partition is read at one instant, and both scripts are one instant each: the accounts hold at any time.
    """
    found: list[Violation] = []
    reports = 0
    chosen = sorted(outcomes)
    for keys in KEYS:
        with client.pipeline(transaction=True) as pipe:
            for outcome in chosen:
                pipe.hgetall(keys.outcome(*outcome))
            pipe.xrange(keys.stream)
            *answers, entries = pipe.execute()
        flight = _reports(entries)
        reports += flight.total()
        for outcome, answer in zip(chosen, answers, strict=True):
            found += _balance(outcome, _words(answer), flight[outcome])
    return found, reports


def _read_accounts(client: Any, outcomes: list[Outcome]) -> dict[Outcome, Counter[str]]:
    with client.pipeline(transaction=False) as pipe:
        for outcome in outcomes:
            for keys in KEYS:
                pipe.hgetall(keys.outcome(*outcome))
        answers: list[dict[bytes, Any]] = pipe.execute()
    found: dict[Outcome, Counter[str]] = {}
    for place, outcome in enumerate(outcomes):
        words: Counter[str] = Counter()
        for answer in answers[place * len(KEYS) : (place + 1) * len(KEYS)]:
            words.update(_words(answer))
        found[outcome] = words
    return found
