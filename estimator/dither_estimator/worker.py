"""The estimator worker: reads the partitions, counts, commits, publishes.

    python -m dither_estimator.worker        (DITHER_STORE_URL names the store)

Order inside a partition: checkpoint first, then the entries after it, then the cells, then one apply that goes
through only if the checkpoint has not moved. A kill at any instant loses nothing and counts nothing twice; a
cell is marked as unpublished in the same apply, so a kill before publishing is made up for by the next start.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

EXIT_OK: Final = 0
EXIT_CONFIG: Final = 78  # EX_CONFIG of sysexits.h: restarting will not help

try:
    from dither_estimator.cells import add, pack, unpack
    from dither_estimator.definitions import Definitions
    from dither_estimator.poison import Attempt, next_step
    from dither_estimator.publisher import Publisher
    from dither_estimator.store import Commit, Entry, Store, StoreUnavailableError
    from dither_estimator.tally import CellCount, Tally, decode, fitting, set_aside_undecoded, tally
    from dither_protocol.errors import DitherError, RegistryError, StorageError
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if __name__ != "__main__" or missing not in ("numpy", "redis", "scipy"):
        raise
    sys.stderr.write(
        f"dither_estimator: the worker needs the package '{missing}'. "
        "Install it with: pip install 'dither[estimator]'\n"
    )
    sys.exit(EXIT_CONFIG)

COMMIT_INTERVAL_S: Final = 1.0
# A commit carries at most 8 MiB: cells, and the payloads of entries that turn out to be dead. What one entry or
# one cell needs is carried in any case.
MAX_COMMIT_CELL_BYTES: Final = 4 << 20
MAX_COMMIT_REPORT_BYTES: Final = 4 << 20
READ_BATCHES: Final = 100
MAX_COMMIT_BATCHES: Final = 5_000
PUBLISH_BUDGET_S: Final = 1.0
RETRY_CAP_S: Final = 10.0
DRAIN_LIMIT_S: Final = 10.0
DRAIN_PUBLISH_S: Final = 1.0

_log = logging.getLogger("dither_estimator")


class Worker:
    """Counts and publishes what a store holds.

    Args:
        store: the store; partitions are found in it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions = 0
        self._definitions = Definitions(store)
        self._publisher = Publisher(store, self._definitions)
        self._attempts: dict[int, Attempt] = {}

    def tick(self, stop: threading.Event | None = None) -> bool:
        """One round over all partitions, then publish for a while; whether there is more to do at once.

        While more entries wait, publishing gets no more time than counting took.

        Args:
            stop: publish no further once it is set.

        Raises:
            StoreUnavailableError: the store does not answer; nothing is lost, try again later.
            StorageError: the store has another layout, or a damaged cell.
            RegistryError: a metric was announced by a version of Dither that this one does not understand.
        """
        began = time.monotonic()
        more = self.count()
        budget = min(PUBLISH_BUDGET_S, time.monotonic() - began) if more else PUBLISH_BUDGET_S
        return self.publish(budget, stop) or more

    def count(self) -> bool:
        """One round over all partitions; whether entries may be waiting still. Raises what `tick` raises."""
        if not self._partitions:
            self._partitions = self._store.open() or 0
        self._definitions.refresh()
        more = False
        for partition in range(self._partitions):
            more |= self._advance(partition)
        return more

    def publish(self, budget_s: float, stop: threading.Event | None = None) -> bool:
        """Publish for a while; whether more is to be published at once. Raises what `tick` raises."""
        return self._publisher.publish(self._partitions, budget_s, stop)

    def _read(self, partition: int, checkpoint: bytes) -> tuple[list[Entry], bool]:
        """The entries after the checkpoint within one commit's limits, at least one; whether more may wait."""
        entries: list[Entry] = []
        size = 0
        while len(entries) < MAX_COMMIT_BATCHES:
            page = self._store.entries(partition, entries[-1][0] if entries else checkpoint, READ_BATCHES)
            for entry in page:
                size += len(entry[1])
                if entries and size > MAX_COMMIT_REPORT_BYTES:
                    return entries, True
                entries.append(entry)
            if len(page) < READ_BATCHES:
                return entries, False
        return entries, True

    def _advance(self, partition: int) -> bool:
        """Count one run of entries of a partition and commit it; whether more may be waiting."""
        checkpoint = self._store.checkpoint(partition)
        start = checkpoint.decode("ascii")
        entries, more = self._read(partition, checkpoint)
        if not entries:
            return False
        last = self._last_attempt(partition)
        step = next_step(last, start)
        if step.set_aside:
            self._commit(partition, checkpoint, entries[:1], set_aside_undecoded(entries[:1]))
            return True
        # What may fail without ending the process comes before the note, as far as it can.
        run = fitting(decode(entries[: step.most_entries], self._definitions), MAX_COMMIT_CELL_BYTES)
        taken = entries[: len(run)]
        with self._attempt(partition, Attempt(start, len(taken), step.tries + 1), last):
            beaten = not self._commit(partition, checkpoint, taken, tally(run))
        return beaten or more or len(taken) < len(entries)

    @contextmanager
    def _attempt(self, partition: int, attempt: Attempt, before: Attempt | None) -> Iterator[None]:
        """Around what may end the process: note it first, and take that back where this process lives on."""
        self._attempts[partition] = attempt
        try:
            self._store.note_attempt(partition, attempt.text)
            yield
        except Exception:
            with suppress(
                StoreUnavailableError
            ):  # then `_last_attempt` knows of it, while this process lives
                self._store.take_back_attempt(partition, attempt.text, before.text if before else "")
            raise

    def _last_attempt(self, partition: int) -> Attempt | None:
        """What was tried last. A try of this very process did not end it (the store was away), and does not count."""
        last = Attempt.parse(self._store.attempt(partition))
        if last is not None and last == self._attempts.get(partition):
            return replace(last, tries=last.tries - 1)
        return last

    def _commit(self, partition: int, checkpoint: bytes, entries: list[Entry], counts: Tally) -> bool:
        """Write what was counted; False where somebody else was faster, and nothing was written."""
        commit = Commit(
            started_from=checkpoint,
            checkpoint=entries[-1][0],
            payload_bytes=sum(len(payload) for _, payload in entries),
            cells=self._new_cells(partition, counts.cells),
            counted=counts.counted,
            dead=counts.dead,
            dead_entries=counts.dead_entries,
        )
        for entry_id, reason, _ in counts.dead_entries:
            _log.error("entry %s cannot be counted and was set aside: %s", entry_id.decode(), reason)
        if self._store.apply(partition, commit):
            return True
        _log.info("partition %d: another worker was faster, nothing written", partition)
        return False

    def _new_cells(self, partition: int, counts: Mapping[str, CellCount]) -> dict[str, bytes]:
        """The packed values of all cells that change: what they hold now plus what was counted."""
        names = list(counts)
        cells: dict[str, bytes] = {}
        for name, packed in zip(names, self._store.cells(partition, names), strict=True):
            count = counts[name]
            old = unpack(packed, len(count.counters))
            cells[name] = pack(*add(*old, count.n, count.counters))
        return cells


def run(worker: Worker, stop: threading.Event) -> None:
    """Tick until ``stop`` is set, then count what is left for at most DRAIN_LIMIT_S, and publish a little.

    A store that does not answer is waited for, with growing pauses; it is said once, not at every try.
    """
    failures = 0
    while not stop.is_set():
        began = time.monotonic()
        try:
            more = worker.tick(stop)
        except StoreUnavailableError as error:
            failures += 1
            if failures == 1:
                _log.warning("the store is not available, waiting for it (%s)", error)
            stop.wait(min(RETRY_CAP_S, 0.25 * 2 ** min(failures, 6)))
            continue
        if failures:
            _log.info("the store is back after %d tries", failures)
            failures = 0
        if not more:
            stop.wait(max(0.0, began + COMMIT_INTERVAL_S - time.monotonic()))
    _drain(worker)


def _drain(worker: Worker) -> None:
    deadline = time.monotonic() + DRAIN_LIMIT_S
    try:
        while worker.count() and time.monotonic() < deadline:
            pass
        if worker.publish(DRAIN_PUBLISH_S):
            _log.info("stopped before everything was published, the next start goes on")
    except StoreUnavailableError as error:
        _log.warning("stopped without draining, nothing is lost (%s)", error)


def main() -> int:
    """Entry point: run until SIGTERM or SIGINT. Returns the exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    url = os.environ.get("DITHER_STORE_URL", "")
    if not url:
        _log.error("DITHER_STORE_URL is not set")
        return EXIT_CONFIG
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        store = Store(url)
    except ValueError:  # its text may hold the password
        _log.error("DITHER_STORE_URL is not the URL of a store, such as redis://host:6379 or unix:///path")
        return EXIT_CONFIG
    try:
        run(Worker(store), stop)
    except (StorageError, RegistryError) as error:
        _log.error("cannot go on: %s", error)
        return EXIT_CONFIG
    except DitherError:
        _log.exception("stopped by an error")
        return 1
    finally:
        store.close()
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
