"""The page about the service itself: the conservation ledger, refusals, workers, partitions, readiness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dither_protocol.storage import UNKNOWN
from dither_server.alarms import Alarm, service_alarms
from dither_server.conservation import Ledger, Terms
from dither_server.counting_state import CountingState
from dither_server.dashboard.desk import Desk
from dither_server.formats import plural
from dither_server.refusals import RefusedReports
from dither_server.store_memory import Memory
from dither_server.store_rules import StoreRefused, StoreUnavailable

REASONS: Final[Mapping[str, str]] = {
    "malformed-report": "is no report",
    "unknown-metric": "about a metric that the registry does not have",
    "unknown-version": "of a version that the registry never had",
    "metric-expired": "about a window after the metric's last day",
    "params-mismatch": "made by another definition of the metric",
    "dimensions-invalid": "dimensions that are not in the registry's lists",
    "window-invalid": "a window that is none of the metric's period",
    "report-too-early": "about a window that has not begun",
    "report-too-old": "about a window that is closed",
    "payload-invalid": "data that the mechanism cannot have made",
}
"""Each reason of a refusal in words."""

CHECKS: Final[Mapping[str, str]] = {
    "store-fit": "the store is the one that this server was set up for",
    "store-writable": "the store takes writes",
    "store-never-evicts": "the store drops nothing when it is full",
    "admit-script": "the store runs the script that takes batches",
    "backlog": "no partition is full",
    "replicas": "enough replicas have what was written",
    "disk": "the store's disk has room",
}
"""Each readiness check in words."""


@dataclass(frozen=True)
class StoreRoom:
    """How full the store is.

    Attributes:
        memory: of each master by its name; None where that hides it.
        high_water_bytes: backlog of a partition from which it takes no more.
        backlog_bytes: of all partitions.
        fullest_bytes: backlog of the partition that has most.
        free_bytes: of the store's disk; None where that is another machine's, or cannot be looked at.
        floor_bytes: free space below which batches are refused.
    """

    memory: Mapping[str, Memory | None]
    high_water_bytes: int
    backlog_bytes: int
    fullest_bytes: int
    free_bytes: int | None
    floor_bytes: int


@dataclass(frozen=True)
class HealthView:
    """Everything of the page.

    Attributes:
        rows: (metric, terms): the metrics of the registry, others that have accounts, and what could be
            assigned to none.
        ledger: the same as measured; None where the store cannot be read.
        counting: workers and partitions; None where the store cannot be read.
        failing: names of the readiness checks that fail.
        trouble: why the store cannot be read; empty where it can.
        alarms: about the service as a whole.
        refused: refused reports of known versions, since the store was created; None where they cannot be read.
        room: how full the store is; None where it cannot be read.
        versions: of the metrics in the registry.
    """

    rows: Sequence[tuple[str, Terms]]
    ledger: Ledger | None
    counting: CountingState | None
    failing: Sequence[str]
    trouble: str
    alarms: Sequence[Alarm]
    refused: Sequence[RefusedReports] | None = None
    room: StoreRoom | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def reasons(self) -> list[str]:
        """Reasons for which reports were refused, the commonest first."""
        total = {} if self.ledger is None else self.ledger.total.rejected
        return sorted((reason for reason, count in total.items() if count), key=lambda reason: -total[reason])

    @property
    def checks(self) -> list[tuple[str, str, str]]:
        """(name, words, ``passes``, ``fails`` or ``unknown``) of each readiness check, new ones that fail too."""
        rest = "unknown" if self.trouble else "passes"  # a store that does not answer was asked no more
        known = [(name, words, "fails" if name in self.failing else rest) for name, words in CHECKS.items()]
        new = [(name, "a check of this server", "fails") for name in self.failing if name not in CHECKS]
        return known + new

    @property
    def said(self) -> str:
        """The page in one sentence, for those who do not see it change."""
        if self.ledger is None:
            return f"The store cannot be read: {self.trouble}"
        total = self.ledger.total
        balance = "the ledger balances" if not total.imbalance else f"imbalance {total.imbalance}"
        return f"{plural(total.in_flight, 'report')} in flight; {balance}"


def health_view(desk: Desk) -> HealthView:
    """Read the page; a store that cannot be read is no error here."""
    failing = desk.failing()
    try:
        ledger, counting, refused = desk.ledger(), desk.counting(), desk.refused()
        room = _room(desk, counting)
    except (StoreUnavailable, StoreRefused) as error:
        return HealthView([], None, None, failing, str(error), [])
    names = [metric.name for metric in desk.service.registry]
    others = sorted(ledger.by_metric.keys() - {*names, UNKNOWN})
    rows = [(name, ledger.terms(name)) for name in (*names, *others, UNKNOWN)]
    return HealthView(
        rows,
        ledger,
        counting,
        failing,
        "",
        service_alarms(ledger, counting, failing, names),
        refused,
        room,
        {metric.name: metric.version for metric in desk.service.registry},
    )


def _room(desk: Desk, counting: CountingState) -> StoreRoom:
    store = desk.service.store
    backlogs = [partition.backlog_bytes for partition in counting.partitions]
    return StoreRoom(
        desk.memory(),
        store.high_water_bytes,
        sum(backlogs),
        max(backlogs, default=0),
        store.disk.free_bytes(),
        store.disk.min_free_bytes,
    )
