"""Devices as users of locust: each fetches the registry, records by the SDK's own sampler, and delivers its batches.

::

    DITHER_INGEST_KEY=... DITHER_OPERATOR_TOKEN=... locust -f load_tests/locustfile.py --headless \
        --host http://127.0.0.1:8787 --users 50 --spawn-rate 25 --run-time 60s

What each answer must be is known beforehand: one that the rules of the protocol do not give is a failure of its
request. With an operator's token the run ends with the verdict of `dither simulate`, which decides about the exit code.

| variable | meaning |
|---|---|
| DITHER_INGEST_KEY | key of the devices |
| DITHER_OPERATOR_TOKEN | key of a viewer; without it there is no verdict |
| DITHER_OLD_REGISTRY | file of an earlier registry that the server has had; without it no device has an old one |
| DITHER_FAULTS | shares, as `--faults` of `dither simulate`; default `old=0.1,early=0.05,late=0.05,swallow=0.05` |
"""

import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import gevent  # type: ignore[import-untyped]
import numpy as np
import requests
from locust import FastHttpUser, constant, events, task
from locust.env import Environment

from dither_client import randomize
from dither_client.backoff import backoff_s
from dither_client.transport import Answer, Delivered, Outcome, Refused, Retry, outcome_of
from dither_fleet.expectation import Cell, Fate
from dither_fleet.faults import Faults
from dither_fleet.population import draw
from dither_fleet.server_view import Snapshot, read_books, read_published
from dither_fleet.tally import Tally, surprise
from dither_fleet.truth import truth_of, truths_of
from dither_fleet.verdict import judge
from dither_fleet.visit import Clock, Question, Sheet, visit
from dither_protocol.registry import (
    Metric,
    Registry,
    canonical_dimensions,
    load_registry,
    registry_from_document,
)
from dither_protocol.wire import Report, encode_batch, encode_report, new_batch_id

FAULTS: Final = Faults.parse(os.environ.get("DITHER_FAULTS", "old=0.1,early=0.05,late=0.05,swallow=0.05"))
KEY: Final = os.environ.get("DITHER_INGEST_KEY", "")
TOKEN: Final = os.environ.get("DITHER_OPERATOR_TOKEN", "")
OLD: Final = os.environ.get("DITHER_OLD_REGISTRY", "")

_OFFLINE_SHARE: Final = 0.2
_OFFLINE_S: Final = 1.0
_COUNT_LIMIT_S: Final = 120.0
_DRAIN_S: Final = 60.0
_TIMEOUT_S: Final = 30.0

log = logging.getLogger("dither")


class Books:
    """What all devices of this process sent, and what was true.

    Attributes:
        tally: what was sent and answered.
        metrics: every version that was answered, by (name, version).
        before: the server before the run; None without an operator's token.
        old: the earlier registry; None where there is none.
        under_way: devices that have sealed batches which are not settled.
        closing: the run is over, and no more devices come.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.metrics: dict[tuple[str, int], Metric] = {}
        self.before: Snapshot | None = None
        self.old: Registry | None = load_registry(Path(OLD)) if OLD else None
        self.under_way = 0
        self.closing = False
        self.generator = np.random.default_rng(int(os.environ.get("DITHER_SEED", "1")))


books = Books()


class Device(FastHttpUser):
    """One device after the other: each task is a fresh one that answers once and is done."""

    wait_time = constant(0)
    connection_timeout = _TIMEOUT_S
    network_timeout = _TIMEOUT_S

    @task
    def answer(self) -> None:
        """Fetch the registry, record, perhaps go offline, and deliver."""
        if books.closing:
            gevent.sleep(0.1)
            return
        kind = self._kind()
        registry = self._registry(kind)
        if registry is None:
            return
        clock = {"early": Clock.EARLY, "late": Clock.LATE}.get(kind, Clock.RIGHT)
        sealed = [self._seal(sheet) for sheet in visit(registry, datetime.now(UTC), clock=clock)]
        books.under_way += 1
        books.tally.devices += 1
        books.tally.made.update(fate for _, fate in sealed)
        if books.generator.random() < _OFFLINE_SHARE:
            gevent.sleep(books.generator.random() * _OFFLINE_S)  # the batches wait on the device
        for body, fate in sealed:
            self._deliver(body, fate)
        books.under_way -= 1

    def _kind(self) -> str:
        names = ("early", "late", "old")
        shares = [getattr(FAULTS, name) for name in names]
        return str(books.generator.choice([*names, ""], p=[*shares, 1 - sum(shares)]))

    def _registry(self, kind: str) -> Registry | None:
        """The registry that the device has: an old one, or what the server publishes."""
        if kind == "old" and books.old is not None:
            return books.old
        with self.client.get("/v1/registry", catch_response=True) as answer:
            if answer.status_code != 200:
                answer.failure(f"the registry was answered {answer.status_code}")
                return None
            return registry_from_document(answer.json())

    def _seal(self, sheet: Sheet) -> tuple[bytes, Fate]:
        """A batch of randomised answers, and what must become of it."""
        reports, cells, rejected = [], [], []
        for slot in sheet.slots:
            question = slot[int(books.generator.integers(len(slot)))]
            report, cell = _record(question)
            reports.append(encode_report(report))
            if question.rejected:
                rejected.append(question.rejected)
            else:
                cells.append(cell)
        fate = Fate(tuple(cells), tuple(rejected), sheet.refused)
        return encode_batch(new_batch_id(), sheet.until, reports), fate

    def _deliver(self, body: bytes, fate: Fate) -> None:
        """Send the same bytes until they have a final answer, as late as the server asks."""
        unread = books.generator.random() < FAULTS.swallow
        tries = 0
        while True:
            tries += 1
            outcome = self._try(body, fate)
            if unread:  # the server has the batch, the device has no answer
                unread = False
                gevent.sleep(backoff_s(1))
                continue
            if not isinstance(outcome, Retry):
                books.tally.settle(fate, outcome)
                return
            gevent.sleep(backoff_s(tries) if outcome.after_s is None else outcome.after_s)

    def _try(self, body: bytes, fate: Fate) -> Outcome:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        with self.client.post(
            "/v1/reports", data=body.decode(), headers=headers, catch_response=True
        ) as answer:
            outcome: Outcome = Retry("network:none", answered=False)
            if answer.status_code:
                lower = {name.lower(): value for name, value in answer.headers.items()}
                outcome = outcome_of(Answer(answer.status_code, lower, answer.content or b""))
            problem = _problem(outcome, fate)
            if problem:
                answer.failure(problem)
            else:
                answer.success()
        if isinstance(outcome, Delivered) and outcome.duplicate:
            books.tally.duplicates += fate.reports
        if isinstance(outcome, Retry):
            books.tally.retries[outcome.reason] += 1
        return outcome


def _problem(outcome: Outcome, fate: Fate) -> str:
    """What is wrong with an answer. An overload with a time to come back is none."""
    if isinstance(outcome, Retry):
        polite = outcome.reason in ("http:429", "http:503") and outcome.after_s is not None
        return "" if polite else f"no receipt: {outcome.reason}"
    if isinstance(outcome, Refused) and outcome.reason == fate.refused:
        return ""
    return surprise(fate, outcome)


def _record(question: Question) -> tuple[Report, Cell]:
    """One true answer of the population, randomised by the SDK."""
    metric, window = question.metric, question.window
    books.metrics[metric.name, metric.version] = metric
    truth = truth_of(metric)
    dimensions = {
        name: list(shares)[int(draw(list(shares.values()), 1, books.generator)[0])]
        for name, shares in truth.dimensions.items()
    }
    held = int(draw(truth.shares, 1, books.generator)[0])
    data = randomize(metric.mechanism, held)
    report = Report(metric.name, metric.version, metric.params_hash, window.label, dimensions, data)
    return report, Cell(metric.name, metric.version, window.label, canonical_dimensions(dimensions))


def _reader(host: str) -> Any:
    """The operator's side of the server, as `dither_fleet.server_view` reads it."""

    def get(path: str, parameters: Any) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = requests.get(host + path, params=dict(parameters), headers=headers, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return answer.json()

    return get


def _snapshot(host: str, cells: Any) -> Snapshot:
    get = _reader(host)
    return Snapshot(read_books(get), read_published(get, cells))


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def look_before(environment: Environment, **_: Any) -> None:
    """What the server has already."""
    if not TOKEN or environment.host is None:
        return
    registry = registry_from_document(_reader(environment.host)("/v1/registry", {}))
    cells = {
        Cell(q.metric.name, q.metric.version, q.window.label, ())
        for each in (registry, books.old)
        if each is not None
        for sheet in visit(each, datetime.now(UTC))
        for slot in sheet.slots
        for q in slot
    }
    books.before = _snapshot(environment.host, cells)


@events.test_stopping.add_listener  # type: ignore[untyped-decorator]
def finish(**_: Any) -> None:
    """Let devices deliver what they have sealed before locust ends them: what they sealed is in the books."""
    books.closing = True
    deadline = time.monotonic() + _DRAIN_S
    while books.under_way and time.monotonic() < deadline:
        gevent.sleep(0.05)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def conclude(environment: Environment, **_: Any) -> None:
    """Wait until everything is counted, and judge."""
    if books.before is None or environment.host is None:
        return
    cells = books.tally.sent_cells()
    deadline = time.monotonic() + _COUNT_LIMIT_S
    while True:
        after = _snapshot(environment.host, cells)
        verdict = judge(
            books.metrics.values(), truths_of(books.metrics.values()), books.tally, books.before, after
        )
        behind = any(line.published < line.accepted for line in verdict.lines) or after.books.in_flight
        if not behind or time.monotonic() > deadline:
            break
        gevent.sleep(0.3)
    for problem in verdict.problems:
        log.error("verdict: %s", problem)
    accepted = sum(line.accepted for line in verdict.lines)
    counted = sum(line.counted for line in verdict.lines)
    rejected = sum(books.tally.rejections().values())
    word = "PASS" if verdict.passed else "FAIL"
    log.info("verdict: %s, accepted %d, counted %d, rejected %d", word, accepted, counted, rejected)
    if not verdict.passed:
        environment.process_exit_code = 1
