"""A fleet: draws devices from a population, randomises their answers and posts real batches."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from dither_client.backoff import backoff_s
from dither_client.transport import Delivered, HttpTransport, Retry
from dither_fleet.population import draw
from dither_fleet.samplers import randomize_many
from dither_protocol.registry import Metric, Registry
from dither_protocol.windows import batch_until, last_accepted_date
from dither_protocol.wire import Report, encode_batch, encode_report, new_batch_id

DEFAULT_REPORTS_PER_BATCH: Final = 250
MAX_TRIES: Final = 12
BATCHES_AHEAD: Final = 4
"""Batches per thread that are drawn and not yet delivered: enough to keep a thread busy, few enough to hold."""

DEVICES_AT_ONCE: Final = 10_000
"""Devices are drawn in groups of this size, so that a fleet needs no memory for all of them."""

_Job: TypeAlias = tuple[str, int, bytes]
"""Metric, reports and body of one batch."""


@dataclass(frozen=True)
class MetricTruth:
    """What is true of a population, for one metric.

    Attributes:
        shares: true share of each value, in the order of the metric's labels.
        dimensions: share of each value of each dimension; dimensions and answers are independent.
    """

    shares: Sequence[float]
    dimensions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass
class FleetResult:
    """What the fleet sent and what the server said, in reports by metric.

    Attributes:
        sent: reports in batches that were posted.
        accepted: reports that the server took.
        retries: tries that had to be repeated, by reason.
        failures: batches given up, by reason.
    """

    sent: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)


class Fleet:
    """Simulated devices that all answer every metric of a registry once, and of a group of metrics one.

    Args:
        endpoint: base URL of the server.
        ingest_key: key for it.
        registry: what is asked.
        truths: what is true, by metric.
        now: the time on all devices, so that one run falls into one window.
    """

    def __init__(
        self,
        endpoint: str,
        ingest_key: str,
        registry: Registry,
        truths: Mapping[str, MetricTruth],
        now: datetime,
    ) -> None:
        self._endpoint = endpoint
        self._ingest_key = ingest_key
        self._registry = registry
        self._truths = truths
        self._now = now
        self._local = threading.local()

    def draw_devices(self, metric: Metric, count: int, generator: np.random.Generator) -> Iterator[Report]:
        """Reports of ``count`` devices to one metric: true values by ``generator``, noise by the system."""
        for begin in range(0, count, DEVICES_AT_ONCE):
            yield from self._draw_some(metric, min(DEVICES_AT_ONCE, count - begin), generator)

    def _draw_some(self, metric: Metric, count: int, generator: np.random.Generator) -> Iterator[Report]:
        truth = self._truths[metric.name]
        indexes = draw(truth.shares, count, generator)
        columns = {
            name: [list(shares)[i] for i in draw(list(shares.values()), count, generator)]
            for name, shares in truth.dimensions.items()
        }
        window = metric.window_at(self._now).label
        for position, data in enumerate(randomize_many(metric.mechanism, indexes)):
            yield Report(
                metric=metric.name,
                version=metric.version,
                params=metric.params_hash,
                window=window,
                dimensions={name: values[position] for name, values in columns.items()},
                data=data,
            )

    def run(
        self,
        devices: int,
        seed: int,
        *,
        reports_per_batch: int = DEFAULT_REPORTS_PER_BATCH,
        threads: int = 4,
        progress: Callable[[int], None] = lambda reports: None,
    ) -> FleetResult:
        """Let every device answer every metric, of a group one, and deliver all batches, few of them drawn ahead.

        Args:
            devices: how many.
            seed: of the population, never of the noise.
            reports_per_batch: how many devices' reports share a batch; real devices send their own.
            threads: connections in parallel.
            progress: called with the number of reports after each batch.
        """
        result = FleetResult()
        generator = np.random.default_rng(seed)
        lock, given_up = threading.Lock(), threading.Event()

        def deliver(job: _Job) -> None:
            metric, reports, body = job
            accepted, retries, failure = self._deliver(body, reports, given_up)
            with lock:
                result.sent[metric] += reports
                result.accepted[metric] += accepted
                result.retries.update(retries)
                if failure:
                    result.failures[failure] += 1
                progress(reports)

        answering = self.answering(devices, generator)
        jobs = (
            job
            for metric in self._registry
            for job in self._batches(metric, answering[metric.name], generator, reports_per_batch)
        )
        with ThreadPoolExecutor(threads) as pool:
            try:
                _for_each(pool, deliver, jobs, at_once=threads * BATCHES_AHEAD)
            except BaseException:
                given_up.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return result

    def answering(self, devices: int, generator: np.random.Generator) -> dict[str, int]:
        """How many devices answer each metric: all of them, or those whose lot in its group falls on it."""
        counts = dict.fromkeys(self._registry.metrics, devices)
        for members in self._registry.groups.values():
            shares = generator.multinomial(devices, [1 / len(members)] * len(members))
            counts |= {metric.name: int(share) for metric, share in zip(members, shares, strict=True)}
        return counts

    def _batches(
        self, metric: Metric, devices: int, generator: np.random.Generator, size: int
    ) -> Iterator[_Job]:
        reports = self.draw_devices(metric, devices, generator)
        last_date = last_accepted_date(metric.window_at(self._now), metric.late_days)
        until = batch_until([last_date], self._now.date())
        while chunk := [encode_report(report) for report in islice(reports, size)]:
            yield metric.name, len(chunk), encode_batch(new_batch_id(), until, chunk)

    def _transport(self) -> HttpTransport:
        if not hasattr(self._local, "transport"):
            self._local.transport = HttpTransport(self._endpoint, self._ingest_key)
        transport: HttpTransport = self._local.transport
        return transport

    def _deliver(self, body: bytes, reports: int, given_up: threading.Event) -> tuple[int, Counter[str], str]:
        """Post one batch, the same bytes at every try: (accepted reports, retries by reason, why given up)."""
        retries: Counter[str] = Counter()
        for attempt in range(1, MAX_TRIES + 1):
            outcome = self._transport().send(body)
            if isinstance(outcome, Delivered):
                if outcome.duplicate:  # an earlier try had arrived, its answer had not
                    return reports - outcome.rejected, retries, ""
                return outcome.accepted, retries, ""
            if not isinstance(outcome, Retry):
                return 0, retries, outcome.reason
            retries[outcome.reason] += 1
            pause_s = min(5.0, backoff_s(attempt) if outcome.after_s is None else outcome.after_s)
            if given_up.wait(pause_s):
                break
        return 0, retries, "gave up"


def _for_each(
    pool: ThreadPoolExecutor, work: Callable[[_Job], None], jobs: Iterator[_Job], *, at_once: int
) -> None:
    """Do ``work`` for all jobs, taking the next one when fewer than ``at_once`` are under way."""
    under_way: set[Future[None]] = set()
    for job in jobs:
        under_way.add(pool.submit(work, job))
        if len(under_way) >= at_once:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
    for future in as_completed(under_way):
        future.result()
