"""The estimator worker: reads the partitions, counts, commits, publishes.

    python -m dither_estimator.worker        (DITHER_STORE_URL names the store, DITHER_WORKER_NAME the worker)

Order inside a partition: checkpoint first, then the entries after it, then the cells, then one apply that goes
through only if the checkpoint has not moved. A kill at any instant loses nothing and counts nothing twice; a
cell is marked as unpublished in the same apply, so a kill before publishing is made up for by the next start.

Several workers share the partitions by leases, and one of them publishes.
"""

import gc
import logging
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

EXIT_OK: Final = 0
EXIT_CONFIG: Final = 78  # EX_CONFIG of sysexits.h: restarting will not help

try:
    from dither_estimator.archive import open_archive
    from dither_estimator.cells import add, pack, unpack
    from dither_estimator.definitions import Definitions
    from dither_estimator.leases import Leases
    from dither_estimator.poison import NOBODY, Attempt, next_step
    from dither_estimator.presence import Fate
    from dither_estimator.publisher import Publisher
    from dither_estimator.retention import Retention
    from dither_estimator.store import Commit, Entry, Store, StoreUnavailableError
    from dither_estimator.tally import CellCount, Tally, decode, fitting, set_aside_undecoded, tally
    from dither_protocol.errors import DitherError, RegistryError, StorageError
    from dither_protocol.log_lines import FORMATTERS
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
READ_BATCHES: Final = 500
MAX_COMMIT_BATCHES: Final = 5_000
PUBLISH_BUDGET_S: Final = 1.0
RETRY_CAP_S: Final = 2.0  # well below the leases' time: after an outage every worker is soon heard of again
DRAIN_LIMIT_S: Final = 10.0
DRAIN_PUBLISH_S: Final = 1.0
DRAIN_ARCHIVE_S: Final = 3.0
PRUNE_BUDGET_S: Final = 0.25

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

_log = logging.getLogger("dither_estimator")


class Worker:
    """Counts and publishes its share of what a store holds.

    Args:
        store: the store; partitions are found in it.
        name: of the worker; it takes the place of earlier workers of that name at once.
        archive: folder of the archive; None for none.
        high_water_bytes: the servers' mark, where an operator has set one.

    Raises:
        StorageError: an archive needs pyarrow, and it is not installed.
    """

    def __init__(
        self,
        store: Store,
        name: str = "worker",
        archive: Path | None = None,
        high_water_bytes: int | None = None,
    ) -> None:
        self._store = store
        self._partitions = 0
        self._definitions = Definitions(store)
        self._publisher = Publisher(store, self._definitions)
        self._leases = Leases(store, name)
        self._archive = open_archive(store, self._definitions, archive, high_water_bytes)
        self._retention = Retention(store, self._definitions, self._archive.folder)

    def tick(self, stop: threading.Event | None = None) -> bool:
        """One round over its partitions, then publish for a while; whether there is more to do at once.

        While more entries wait, publishing gets a quarter of the time that counting took.

        Args:
            stop: publish no further once it is set.

        Raises:
            StoreUnavailableError: the store does not answer; nothing is lost, try again later.
            StorageError: the store has another layout, or a damaged cell.
            RegistryError: a metric was announced by a version of Dither that this one does not understand.
        """
        began = time.monotonic()
        try:
            more = self.count()
            more = self.archive() or more
            if self.may_publish():
                counted_s = time.monotonic() - began
                budget = min(PUBLISH_BUDGET_S, counted_s / 4) if more else PUBLISH_BUDGET_S
                more = self.publish(budget, stop) or more
            self._prune(stop)
            return more
        except StoreUnavailableError:
            self._leases.lost_contact()
            raise

    def count(self) -> bool:
        """One round over its partitions; whether entries may be waiting still. Raises what `tick` raises."""
        if not self._partitions:
            self._partitions = self._store.open() or 0
        self._definitions.refresh()
        self._leases.refresh(self._partitions)
        more = False
        for partition in self._leases.partitions:
            self._leases.refresh(self._partitions)  # counting may take long, and the others must hear of it
            if partition in self._leases.partitions:
                self._archive.begin(self._partitions, partition)
                more |= self._advance(partition)
        return more

    def may_publish(self) -> bool:
        """Whether it is this worker that publishes. Raises what `tick` raises."""
        self._leases.refresh(self._partitions)
        return self._leases.publishing

    def publish(self, budget_s: float, stop: threading.Event | None = None, *, resting: bool = True) -> bool:
        """Publish for a while; whether more is to be published at once.

        Args:
            budget_s: for how long.
            stop: publish no further once it is set.
            resting: not while publishing rests from a long round.

        Raises what `tick` raises.
        """
        return self._publisher.publish(self._partitions, budget_s, stop, resting=resting)

    def archive(self, *, at_once: bool = False) -> bool:
        """Archive what its partitions have counted, where it is time to; whether more may be to do at once.

        Args:
            at_once: however little it is.

        Raises what `tick` raises.
        """
        more = False
        for partition in self._leases.partitions:
            self._leases.refresh(self._partitions)
            if partition in self._leases.partitions:
                more |= self._archive.advance(self._partitions, partition, at_once=at_once)
        return more

    def _prune(self, stop: threading.Event | None) -> None:
        mine, publishing = self._leases.partitions, self._leases.publishing
        self._retention.prune(
            self._partitions, mine, publishing=publishing, budget_s=PRUNE_BUDGET_S, stop=stop
        )

    def leave(self) -> None:
        """Give the leases back, so that other workers go on at once."""
        self._leases.leave()

    def _read(self, partition: int, checkpoint: bytes) -> tuple[list[Entry], bool]:
        """The entries after the checkpoint within one commit's limits, at least one; whether more may wait."""
        entries: list[Entry] = []
        size = 0
        while len(entries) < MAX_COMMIT_BATCHES:
            last = entries[-1][0] if entries else checkpoint
            page = self._store.entries(partition, last, READ_BATCHES, MAX_COMMIT_REPORT_BYTES - size)
            for entry in page:
                size += len(entry[1])
                if entries and size > MAX_COMMIT_REPORT_BYTES:
                    return entries, True
                entries.append(entry)
            if len(page) < READ_BATCHES:
                return entries, size > MAX_COMMIT_REPORT_BYTES  # one entry that is larger ends its page alone
        return entries, True

    def _advance(self, partition: int) -> bool:
        """Count one run of entries of a partition and commit it; whether more may be waiting."""
        checkpoint = self._store.checkpoint(partition)
        start = checkpoint.decode("ascii")
        entries, more = self._read(partition, checkpoint)
        if not entries:
            return False
        last = self._last_attempt(partition, start)
        if last is not None and last.owner != NOBODY:
            return False  # a later tick knows whether that was somebody's end
        step = next_step(last, start)
        if step.set_aside:
            self._commit(partition, checkpoint, entries[:1], set_aside_undecoded(entries[:1]))
            return True
        # What may fail without ending the process comes before the note, as far as it can.
        run = fitting(decode(entries[: step.most_entries], self._definitions), MAX_COMMIT_CELL_BYTES)
        taken = entries[: len(run)]
        attempt = Attempt(start, len(taken), step.tries + 1, self._leases.owner)
        with self._attempt(partition, attempt, last):
            beaten = not self._commit(partition, checkpoint, taken, tally(run))
        return beaten or more or len(taken) < len(entries)

    @contextmanager
    def _attempt(self, partition: int, attempt: Attempt, before: Attempt | None) -> Iterator[None]:
        """Around what may end the process: note it first, and take that back where this process lives on."""
        try:
            self._store.note_attempt(partition, attempt.text)
            yield
        except Exception:
            with suppress(StoreUnavailableError):  # then its owner tells, while this process lives
                self._store.take_back_attempt(partition, attempt.text, before.text if before else "")
            raise

    def _last_attempt(self, partition: int, start: str) -> Attempt | None:
        """What was tried last from this checkpoint, settled where it is known what became of its owner."""
        last = Attempt.parse(self._store.attempt(partition))
        if last is None or last.checkpoint != start:
            return None
        fate = Fate.DIED if last.owner == NOBODY else self._leases.fate(last.owner)
        if fate is Fate.UNKNOWN:
            return last
        if fate is Fate.DIED and last.owner != NOBODY:
            what = (partition, last.owner, last.entries, last.tries)
            _log.warning("partition %d: worker %s ended while it counted %d entries, try %d", *what)
        return last.settled(died=fate is Fate.DIED)

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
        if not self._store.apply(partition, commit):
            _log.info("partition %d: another worker was faster, nothing written", partition)
            return False
        for entry_id, reason, _ in counts.dead_entries:
            _log.error("entry %s cannot be counted and was set aside: %s", entry_id.decode(), reason)
        if counts.dead_entries:
            kept = self._store.dead_count(partition)
            _log.error("partition %d keeps %d entries that were set aside", partition, kept)
        return True

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
    """Tick until ``stop`` is set, then count what is left for at most DRAIN_LIMIT_S, publish a little, and leave.

    A store that does not answer is waited for, with growing pauses; it is said once, not at every try.
    """
    try:
        _keep_ticking(worker, stop)
        _drain(worker)
    finally:
        worker.leave()


def _keep_ticking(worker: Worker, stop: threading.Event) -> None:
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


def _drain(worker: Worker) -> None:
    deadline = time.monotonic() + DRAIN_LIMIT_S
    try:
        while worker.count() and time.monotonic() < deadline:
            pass
        deadline = time.monotonic() + DRAIN_ARCHIVE_S
        while worker.archive(at_once=True) and time.monotonic() < deadline:
            pass
        if worker.may_publish() and worker.publish(DRAIN_PUBLISH_S, resting=False):
            _log.info("stopped before everything was published, the next start goes on")
    except StoreUnavailableError as error:
        _log.warning("stopped without draining, nothing is lost (%s)", error)


def _worker(store: Store, name: str) -> Worker:
    folder = os.environ.get("DITHER_ARCHIVE", "")
    mark = os.environ.get("DITHER_HIGH_WATER_BYTES", "")  # a setting of the servers, who may share it with us
    return Worker(store, name, Path(folder) if folder else None, int(mark) if mark.isdecimal() else None)


def _log_to_stderr(style: str) -> bool:
    """Write log lines as ``DITHER_LOG`` says, as the servers do; False where it says nothing that is known."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS.get(style, FORMATTERS["human"])())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if style not in FORMATTERS:
        _log.error("DITHER_LOG must be one of %s", ", ".join(FORMATTERS))
    return style in FORMATTERS


def main() -> int:
    """Entry point: run until SIGTERM or SIGINT. Returns the exit code."""
    fit = _log_to_stderr(os.environ.get("DITHER_LOG", "") or "human")
    url = os.environ.get("DITHER_STORE_URL", "")
    if not url:
        _log.error("DITHER_STORE_URL is not set")
        fit = False
    name = os.environ.get("DITHER_WORKER_NAME", "") or f"worker-{secrets.token_hex(4)}"
    if not _NAME.fullmatch(name):
        _log.error("DITHER_WORKER_NAME must be 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit")
        fit = False
    if not fit:
        return EXIT_CONFIG
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        store = Store(url)
    except ValueError:  # its text may hold the password
        _log.error(
            "DITHER_STORE_URL is not the URL of a store, such as redis://host:6379 or cluster://a:6379,b:6379"
        )
        return EXIT_CONFIG
    gc.freeze()  # what the imports have made stays: each full collection would walk over all of it
    try:
        run(_worker(store, name), stop)
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
