"""The sender: one lazy daemon thread that seals reports into batches and delivers them, with one retry path.

It sends the stored bytes of a batch again and again until the server has them, refuses them for good, or
nobody would accept them any more.
"""

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Final

from dither_client import outbox
from dither_client.results import FlushResult
from dither_client.state import State
from dither_client.transport import Delivered, Outcome, Refused, Retry, Transport

BACKOFF_BASE_S: Final = 1.0
BACKOFF_CAP_S: Final = 300.0

_log = logging.getLogger("dither_client")


def backoff_s(failures: int) -> float:
    """Full-jitter back-off after ``failures`` failures in a row: uniform in [0, min(cap, base 2^(failures-1))].

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("full jitter").
    """
    ceiling = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(failures - 1, 16))
    return ceiling * secrets.randbelow(1 << 20) / (1 << 20)


class Sender:
    """Delivers the outbox in the background.

    Args:
        state: where the outbox lives.
        transport: sends one batch once.
        today: gives today's UTC date.
        interval_s: pause between two rounds.
    """

    def __init__(
        self, state: State, transport: Transport, today: Callable[[], date], interval_s: float
    ) -> None:
        self._state = state
        self._transport = transport
        self._today = today
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._flush_wanted = False
        self._failures = 0
        self._not_before = 0.0  # monotonic time of the next try after a failure
        self.totals: Counter[str] = Counter()

    def start(self) -> None:
        """Start the thread, once; called when there is something to send."""
        with self._changed:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="dither-sender", daemon=True)
                self._thread.start()

    def flush(self, timeout_s: float) -> FlushResult:
        """Seal and send everything now, as far as the back-off allows, and wait at most ``timeout_s``."""
        before = Counter(self.totals)
        deadline = time.monotonic() + timeout_s
        pending = self.pending_reports()
        if pending:
            self.start()
        with self._changed:
            while pending and self._thread is not None and time.monotonic() < deadline:
                self._flush_wanted = True
                self._changed.notify_all()
                self._changed.wait(min(0.05, max(0.0, deadline - time.monotonic())))
                pending = self.pending_reports()
        gained = Counter(self.totals)
        gained.subtract(before)
        return FlushResult(
            sent=gained["sent"],
            duplicate=gained["duplicate"],
            rejected=gained["rejected"],
            dropped=sum(count for name, count in gained.items() if name.startswith("dropped:")),
            pending=pending,
            timed_out=pending > 0,
        )

    def stop(self, timeout_s: float) -> bool:
        """End the thread; True when it has ended within ``timeout_s``. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def pending_reports(self) -> int:
        """Reports on the device, sealed or not."""
        with self._state.transaction() as connection:
            return outbox.pending_reports(connection)

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._round()
        finally:
            self._transport.close()

    def _wait_for_work(self) -> bool:
        """Sleep until the interval has passed or a flush is asked for, and the back-off is over."""
        due = time.monotonic() + self._interval_s
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                wanted_at = now if self._flush_wanted else due
                start_at = max(wanted_at, self._not_before)
                if start_at <= now:
                    self._flush_wanted = False
                    return True
                self._changed.wait(start_at - now)
        return False

    def _round(self) -> None:
        """Seal what is open, then deliver batch after batch until none is left or one fails."""
        with self._state.transaction(durable=True) as connection:
            outbox.seal(connection, self._today())
        while not self._stopping:
            with self._state.transaction() as connection:
                batch = outbox.first_batch(connection)
            if batch is None:
                return
            outcome = Refused("expired") if batch.until < self._today() else self._transport.send(batch.body)
            if not self._settle(batch, outcome):
                return

    def _settle(self, batch: outbox.Batch, outcome: Outcome) -> bool:
        """Book what came of one try; whether to go on with the next batch."""
        if isinstance(outcome, Retry):
            self._failures += 1
            wait_s = backoff_s(self._failures) if outcome.after_s is None else outcome.after_s
            self._not_before = time.monotonic() + wait_s
            self._count(f"retry:{outcome.reason}", 1)
            _log.debug("batch of %d reports not delivered (%s)", batch.reports, outcome.reason)
            return False
        self._failures = 0
        if isinstance(outcome, Delivered):
            self._book_delivery(batch, outcome)
        else:
            self._count(f"dropped:{outcome.reason}", batch.reports)
            _log.warning("%d reports dropped for good (%s)", batch.reports, outcome.reason)
        # Counted first: a flush that sees nothing pending must also see what became of it.
        with self._state.transaction() as connection:
            outbox.remove(connection, batch.batch_id)
        return True

    def _book_delivery(self, batch: outbox.Batch, outcome: Delivered) -> None:
        if outcome.duplicate:
            self._count("duplicate", batch.reports - outcome.rejected)
        self._count("sent", outcome.accepted)
        self._count("rejected", outcome.rejected)
        if outcome.rejected:
            _log.warning("the server rejected %d of %d reports", outcome.rejected, batch.reports)

    def _count(self, name: str, reports: int) -> None:
        with self._changed:
            self.totals[name] += reports
            self._changed.notify_all()
