"""The sender: one lazy daemon thread that seals reports into batches and delivers them, with one retry path.

It sends the stored bytes of a batch again and again until the server has them, refuses them for good, or
nobody would accept them any more. Nothing is sent outside this thread.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final

from dither_client import backoff, outbox
from dither_client.errors import StateBrokenError, StateBusyError, StateError
from dither_client.log import logger
from dither_client.owners import Owner
from dither_client.registry_source import RegistrySource
from dither_client.results import FlushResult
from dither_client.state import State
from dither_client.transport import Delivered, Outcome, Refused, Retry, TooLarge, Transport
from dither_client.warner import Warner

_LONGEST_SLEEP_S: Final = 60.0  # a clock that was set, or a machine that slept, is noticed after this
_BUSY_PAUSE_S: Final = 0.2
_FULL_PAUSE_S: Final = 5.0


class Sender:
    """Delivers the outbox in the background.

    Args:
        state: where the outbox lives.
        owner: token of this process.
        transport: sends one batch once.
        registry: refreshed by this thread where it comes from the server.
        clock: gives the time as an aware datetime, for dates.
        delay_s: reports leave at a random time up to this after the first one was recorded.
        unlinkable: each report alone, at its own time.
        may_send: whether the person agrees now.
    """

    def __init__(
        self,
        state: State,
        owner: Owner,
        transport: Transport,
        registry: RegistrySource,
        *,
        clock: Callable[[], datetime],
        delay_s: float,
        unlinkable: bool,
        may_send: Callable[[], bool],
    ) -> None:
        self._state = state
        self._owner = owner
        self._transport = transport
        self._registry = registry
        self._clock = clock
        self._delay_s = delay_s
        self._unlinkable = unlinkable
        self._may_send = may_send
        self._warner = Warner()
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._flush_wanted = False
        self._wakes = 0  # how often the thread was told to look again
        self._next_due: float | None = None
        self.totals: Counter[str] = Counter()

    def after_fork(self, owner: Owner) -> None:
        """In a forked child: no thread, new locks, nothing to deliver, and connections of its own."""
        self._owner = owner
        self._transport.after_fork()
        self._reset()

    def _now(self) -> float:
        """The real time, seconds since the epoch: delays and back-off go on where a test's clock stands still."""
        return time.time()

    def due_at(self) -> float:
        """The random time at which a report that is recorded now shall leave, seconds since the epoch.

        Reports that wait together leave together; unlinkable ones have a time each.
        """
        now = self._now()
        due = self._next_due
        # A time further ahead than the delay is one from before the clock was set back.
        if due is None or not now < due <= now + self._delay_s or self._unlinkable:
            return now + backoff.uniform_s(self._delay_s)
        return due

    def expect(self, due_at: float) -> None:
        """A report with this time was committed: have the thread run, and look again if it has to act sooner."""
        if self._next_due is None or due_at < self._next_due or self._thread is None:
            self._next_due = due_at
            self.wake()

    def wake(self) -> None:
        """Start the thread if there is none yet, and let it look again at what is due."""
        with self._changed:
            if self._thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name="dither-sender", daemon=True)
                # A signal handler that records may have started one meanwhile, and must not start another from here
                # on. Handlers run at calls, and there is none between the second look and the note.
                if self._thread is None:
                    self._thread = thread
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is ending: what is on disk stays for the next run
                        self._thread = None
            self._wakes += 1
            self._changed.notify_all()

    def pending_reports(self) -> int:
        """Reports of this process on the device, sealed or not; 0 where the state cannot tell."""
        try:
            with self._state.transaction() as connection:
                return outbox.pending_reports(connection, self._owner.token)
        except StateError:
            return 0

    def flush(self, timeout_s: float) -> FlushResult:
        """Seal and send everything now, as far as the back-off allows, and wait at most ``timeout_s``."""
        before = Counter(self.totals)
        deadline = time.monotonic() + timeout_s
        pending = self.pending_reports()
        if pending:
            self.wake()
        while pending and time.monotonic() < deadline and not self._must_wait_beyond(deadline):
            if not self._allowed():
                break
            with self._changed:
                if self._thread is None:
                    break
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

    def _allowed(self) -> bool:
        try:
            return self._may_send()
        except StateError:
            return True  # the thread will see

    def _must_wait_beyond(self, deadline: float) -> bool:
        """Whether the back-off lasts longer than a caller would wait."""
        return self._retry_at() - self._now() > deadline - time.monotonic()

    def _retry_at(self) -> float:
        try:
            with self._state.transaction() as connection:
                return backoff.retry_at(connection, self._now())
        except StateError:
            return 0.0

    def finish(self, timeout_s: float) -> None:
        """Wait for what is being delivered now, at most ``timeout_s``, and begin nothing new afterwards.

        With a state on disk that is what is due already, and nothing while the back-off runs: the rest keeps. What
        is only in memory is flushed.
        """
        deadline = time.monotonic() + timeout_s
        if not self._state.persistent:
            self.flush(timeout_s)
        else:
            while time.monotonic() < deadline and self._is_delivering():
                with self._changed:
                    self._changed.wait(min(0.05, max(0.0, deadline - time.monotonic())))
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _is_delivering(self) -> bool:
        if self._thread is None or not self._thread.is_alive():
            return False
        now = self._now()
        try:
            at = self._next_delivery(now) if self._may_send() else None
        except StateBusyError:
            return True  # another process is writing; ask again
        except StateError:
            return False
        return at is not None and at <= now

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended, after waiting at most ``timeout_s`` for it."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    # What follows runs in the thread.

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                try:
                    self._round()
                except StateBrokenError as error:
                    logger().warning("the sender stops: %s", str(error))
                    return
                except StateError as error:  # another process is writing, or the disk is full: later
                    self._pause(_BUSY_PAUSE_S if isinstance(error, StateBusyError) else _FULL_PAUSE_S)
        finally:
            self._transport.close()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._stopping:
                self._changed.wait(seconds)

    def _wait_for_work(self) -> bool:
        """Sleep until something is due and the back-off is over; False when it is time to stop."""
        while True:
            now = self._now()
            wakes = self._wakes
            try:
                at = self._next_action(now)
            except StateBrokenError:
                return False
            except StateError:
                at = now + _BUSY_PAUSE_S
            with self._changed:
                if self._stopping:
                    return False
                if at is not None and at <= now:
                    return True
                if wakes != self._wakes:
                    continue  # something came since the look at what is due
                wait_s = _LONGEST_SLEEP_S if at is None else min(_LONGEST_SLEEP_S, at - now)
                self._changed.wait(wait_s)

    def _next_action(self, now: float) -> float | None:
        """When the thread has something to do: deliver, or ask for the registry."""
        if not self._may_send():
            return None
        times = [self._next_delivery(now), self._registry.next_fetch_at]
        return min((time_ for time_ in times if time_ is not None), default=None)

    def _next_delivery(self, now: float) -> float | None:
        """When something is due and the back-off is over; None with an empty queue."""
        with self._state.transaction() as connection:
            at = outbox.next_due(connection, self._owner.token, now)
            retry_at = backoff.retry_at(connection, now)
        if at is None:
            return None
        return max(now if self._flush_wanted else at, retry_at)

    def _round(self) -> None:
        """Refresh the registry if it is time; seal what is due; deliver batch after batch until one fails."""
        if not self._may_send():
            return
        self._registry.refresh(self._transport, self._now())
        everything, self._flush_wanted = self._flush_wanted, False
        self._next_due = None
        now = self._now()
        with self._state.transaction(durable=True) as connection:
            if backoff.retry_at(connection, now) > now:
                return
            self._owner.adopt(connection)
            outbox.seal(
                connection,
                self._owner.token,
                self._today(),
                now,
                everything=everything,
                alone=self._unlinkable,
            )
        while not self._stopping and self._deliver_one():
            pass

    def _today(self) -> date:
        return self._clock().astimezone(UTC).date()

    def _deliver_one(self) -> bool:
        """Try one batch; whether to go on with the next."""
        with self._state.transaction(durable=True) as connection:
            batch = outbox.next_batch(connection, self._owner.token)
        if batch is None:
            return False
        expired = batch.until < self._today()
        return self._settle(batch, Refused("expired") if expired else self._try(batch))

    def _try(self, batch: outbox.Batch) -> Outcome:
        """Send once. A transport that raises, against its contract, is one more failure: the sender outlives it."""
        try:
            return self._transport.send(batch.body)
        except Exception as error:
            name = type(error).__name__
            self._warner.warn("transport", "the transport failed (%s)", name)  # its text might hold anything
            return Retry(f"transport:{name}", answered=False)

    def _settle(self, batch: outbox.Batch, outcome: Outcome) -> bool:
        """Book what came of one try; whether to go on with the next batch."""
        if isinstance(outcome, TooLarge):
            return self._settle_too_large(batch, outcome)
        if isinstance(outcome, Retry):
            self._postpone(batch, outcome)
            return False
        if isinstance(outcome, Delivered):
            self._book_delivery(batch, outcome)
        else:
            self._count(f"dropped:{outcome.reason}", batch.reports)
            name = f"dropped:{outcome.reason}"
            self._warner.warn(name, "%d reports dropped for good (%s)", batch.reports, outcome.reason)
        # Counted first: a flush that sees nothing pending must also see what became of it.
        with self._state.transaction() as connection:
            outbox.remove(connection, batch)
            backoff.succeeded(connection)
        with self._changed:
            self._changed.notify_all()
        return True

    def _settle_too_large(self, batch: outbox.Batch, outcome: TooLarge) -> bool:
        """Split, unless an earlier try left open whether the server has the batch: halves would count twice."""
        if batch.in_doubt:
            self._postpone(batch, Retry(outcome.reason))
            return False
        with self._state.transaction(durable=True) as connection:
            if outbox.split(connection, self._owner.token, batch):
                return True
        return self._settle(batch, Refused(outcome.reason))

    def _postpone(self, batch: outbox.Batch, outcome: Retry) -> None:
        with self._state.transaction() as connection:
            outbox.postpone(connection, batch, self._now(), answered=outcome.answered)
            backoff.failed(connection, self._now(), outcome.after_s)
        self._count(f"retry:{outcome.reason}", 1)
        logger().debug("a batch of %d reports is not delivered yet (%s)", batch.reports, outcome.reason)

    def _book_delivery(self, batch: outbox.Batch, outcome: Delivered) -> None:
        if outcome.duplicate:
            self._count("duplicate", batch.reports - outcome.rejected)
        self._count("sent", outcome.accepted)
        self._count("rejected", outcome.rejected)
        if outcome.rejected:
            words = "the server rejected %d of %d reports"
            self._warner.warn("rejected", words, outcome.rejected, batch.reports)

    def _count(self, name: str, reports: int) -> None:
        if reports:
            with self._changed:
                self.totals[name] += reports
                self._changed.notify_all()
