"""The client: what an app holds. `record()` randomises an answer on the spot and forgets it."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from dither_client import lifecycle, outbox, settings
from dither_client.consent import Consent, standing
from dither_client.errors import (
    BudgetExhaustedError,
    NotConsentedError,
    RefusedError,
    StateBrokenError,
    StateError,
)
from dither_client.log import logger
from dither_client.owners import Owner
from dither_client.recording import NO_VALUE, AppLimits, NoValue, Recorder
from dither_client.registry_source import RegistrySource, read_registry, remember_in_use
from dither_client.registry_trust import read_keys
from dither_client.results import FlushResult, Pending, RecordResult, RecordStatus
from dither_client.sender import Sender
from dither_client.state import State
from dither_client.transport import HttpTransport, Transport, check_endpoint
from dither_client.warner import Warner
from dither_protocol.errors import UnknownMetricError
from dither_protocol.registry import Registry

if TYPE_CHECKING:
    from dither_client.spending import PrivacyLedger

_THREAD_END_S: Final = 0.05


class Client:
    """Collects randomised answers and delivers them in the background.

    Args:
        endpoint: base URL of the server; https, or plain http to a loopback address.
        registry: the app's metrics: a Registry, its JSON form, or the path of a file, TOML or signed. None: the
            server's.
        ingest_key: the app's key for the server.
        state_dir: folder for ledger and queue, which several processes may share. None keeps both in memory: an
            exit loses what was not sent, and every start is a new device with a new budget.
        max_epsilon: no metric with a larger epsilon (of a memoised one: epsilon_permanent) is answered, whatever a
            registry says (invariant P6).
        max_epsilon_per_day: limit on the sum of epsilons of one UTC day, beside the registry's own.
        max_epsilon_lifetime: limit on the sum of epsilons of this state directory, beside the registry's own.
        max_delta: makes ``max_epsilon_lifetime`` a limit on (epsilon, delta), which allows more reports, and caps the
            delta of the registry's limit. None: ``max_epsilon_lifetime`` is one on the plain sum, whatever delta a
            registry has.
        consent: what counts as the decision of a person who has not made one; by default no if the environment
            has ``DO_NOT_TRACK=1``, else yes. What the person decided goes before it.
        enabled: False switches everything off; by default on unless the environment has ``DITHER_DISABLED=1``.
        fetch_registry: ask the server for its registry in the background; by default only without one of the app, or
            with ``registry_keys``.
        registry_keys: public keys, ``dither-pub-...``. A fetched registry then needs a signature by one of them, and a
            revision that is not lower than any that this device has seen. Empty: the server is trusted.
        strict: raise for an exhausted budget and a missing consent as well.
        delay_s: reports leave at a random time up to this after the first of them was recorded, so that their
            arrival does not date the event; 0 to 3,600.
        unlinkable: each report leaves alone, at its own random time and on a fresh connection.
        exit_timeout_s: how long `shutdown`, the end of a `with` block and the exit of the process may take.
        max_queue_reports: how many reports wait at most; more are dropped before they are charged.
        max_queue_bytes: the same in bytes.
        transport: replaces HTTP, for tests.
        clock: gives the time as an aware datetime, for tests.

    Raises:
        ValueError: a bad endpoint, key or number.
        RegistryError: the registry breaks a rule.
        OSError: the registry file cannot be read.
    """

    _recorder_type: ClassVar[type[Recorder]] = Recorder

    def __init__(
        self,
        endpoint: str,
        registry: Registry | Mapping[str, Any] | str | Path | None = None,
        *,
        ingest_key: str,
        state_dir: str | Path | None = None,
        max_epsilon: float = settings.DEFAULT_MAX_EPSILON,
        max_epsilon_per_day: float | None = None,
        max_epsilon_lifetime: float | None = None,
        max_delta: float | None = None,
        consent: bool | None = None,
        enabled: bool | None = None,
        fetch_registry: bool | None = None,
        registry_keys: Iterable[str] = (),
        strict: bool = False,
        delay_s: float = settings.DEFAULT_DELAY_S,
        unlinkable: bool = False,
        exit_timeout_s: float = settings.DEFAULT_EXIT_TIMEOUT_S,
        max_queue_reports: int = settings.DEFAULT_MAX_QUEUE_REPORTS,
        max_queue_bytes: int = settings.DEFAULT_MAX_QUEUE_BYTES,
        transport: Transport | None = None,
        clock: Callable[[], datetime] = settings.utc_now,
    ) -> None:
        check_endpoint(endpoint)
        settings.check_key(ingest_key)
        settings.check_limits(max_epsilon, max_epsilon_per_day, max_epsilon_lifetime, max_delta=max_delta)
        settings.check_numbers(delay_s, exit_timeout_s, max_queue_reports, max_queue_bytes)
        bundled = None if registry is None else read_registry(registry)
        keys = read_keys(registry_keys)
        self.exit_timeout_s = exit_timeout_s
        self._strict = strict
        self._clock = clock
        self._broken = ""
        self._closed = False
        self._counts: Counter[str] = Counter()
        self._count_lock = threading.RLock()
        self._warner = Warner()
        self._folder = Path(state_dir) if state_dir is not None else None
        self._state = State(self._folder)
        self._consent = Consent(self._state, standing(enabled, consent, os.environ))
        self._recorder = self._recorder_type(
            self._state,
            self._consent,
            AppLimits(
                max_epsilon,
                max_epsilon_per_day,
                max_epsilon_lifetime,
                max_queue_reports,
                max_queue_bytes,
                max_delta,
            ),
            clock,
        )
        self._owner = Owner(self._folder)
        wanted = (registry is None or bool(keys)) if fetch_registry is None else fetch_registry
        fetch = wanted and self._consent.enabled
        self._source = RegistrySource(bundled, self._state, fetch=fetch, keys=keys)
        self._sender = Sender(
            self._state,
            self._owner,
            transport or HttpTransport(endpoint, ingest_key, fresh_connections=unlinkable),
            self._source,
            clock=clock,
            delay_s=delay_s,
            unlinkable=unlinkable,
            may_send=self._consent.may_send,
        )
        lifecycle.watch(self)
        self._begin()

    def _begin(self) -> None:
        """Send what an earlier run left, and ask for the registry, where either is due."""
        if not self._consent.enabled:
            return
        if self._folder is None:
            logger().info(
                "no state_dir: an exit loses unsent answers; every start is a new device and budget"
            )
        try:
            if self._folder is not None:
                with self._state.transaction() as connection:
                    if self._source.current is not None:
                        remember_in_use(connection, self._source.current)
                    self._owner.adopt(connection)
                if self._sender.pending_reports():
                    self._sender.wake()
        except StateBrokenError as error:
            self._disable(error)
        except StateError:
            pass  # busy: the first record() sees to it
        if self._source.next_fetch_at is not None and not self._broken:
            self._sender.wake()

    # Answering

    def record(
        self,
        metric: str,
        value: bool | str | NoValue = NO_VALUE,
        dimensions: Mapping[str, str] | None = None,
    ) -> RecordResult:
        """Answer one metric: randomise, charge the ledger and queue the report in one transaction.

        The raw value lives only inside this call. There is one report per metric, window and dimensions: the
        first stands, whatever later values are. No network is touched.

        Args:
            metric: name of a metric in the registry.
            value: the true answer: a bool for a boolean metric, one of the categories for a categorical. None is given
                for a calibration metric, whose answer the device draws itself.
            dimensions: a value for each dimension that the metric declares.

        Raises:
            UnknownMetricError, ValueTypeError, ValueDomainError, DimensionError: the app asks for something
                that its registry does not have.
            BudgetExhaustedError, NotConsentedError: with ``strict=True``.
        """
        result = self._off() or self._record(metric, value, dimensions)
        name = str(result.status) + (f":{result.reason}" if result.reason else "")
        with self._count_lock:
            self._counts[name] += 1
        if result.status is RecordStatus.DROPPED:
            self._warner.warn(name, "answers are dropped (%s)", result.reason)
        if self._strict and result.status is RecordStatus.BUDGET_EXHAUSTED:
            raise BudgetExhaustedError("the limits on epsilon allow no further report")
        if self._strict and result.status is RecordStatus.NOT_CONSENTED:
            raise NotConsentedError("the person at the device has not agreed")
        return result

    def _off(self) -> RecordResult | None:
        if self._closed:
            return RecordResult(RecordStatus.DROPPED, "shut_down")
        if not self._consent.enabled:
            return RecordResult(RecordStatus.DISABLED, "switched_off")
        if self._broken:
            return RecordResult(RecordStatus.DISABLED, "state")
        return None

    def _record(self, metric: str, value: object, dimensions: Mapping[str, str] | None) -> RecordResult:
        registry = self._source.current
        if registry is None:
            return RecordResult(RecordStatus.DROPPED, "no_registry")
        due_at = self._sender.due_at()
        try:
            status = self._recorder.commit(
                registry, metric, value, dimensions, owner=self._owner.token, due_at=due_at
            )
        except RefusedError as refused:
            return refused.result
        except StateBrokenError as error:
            self._disable(error)
            return RecordResult(RecordStatus.DISABLED, "state")
        except StateError as error:
            return RecordResult(RecordStatus.DROPPED, error.reason)
        if status is RecordStatus.QUEUED:
            self._sender.expect(due_at)
        return RecordResult(status)

    def _disable(self, error: StateError) -> None:
        """A state that cannot be used never harms the app: the SDK switches itself off, and says so once."""
        if not self._broken:
            self._broken = str(error)
            # As text: the error's traceback leads to frames that hold the raw value, and handlers keep arguments.
            logger().warning("the SDK switches itself off: %s", str(error))

    # Delivering

    def flush(self, timeout: float = 5.0) -> FlushResult:
        """Send what is queued now, without its random delay, and wait for it.

        Args:
            timeout: longest wait, seconds.

        Returns:
            What happened meanwhile. Reports that could not be sent stay queued; while the back-off after a failure
            runs longer than the timeout, the call returns at once.
        """
        if self._off():
            return FlushResult(0, 0, 0, 0, 0, timed_out=False)
        return self._sender.flush(timeout)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Wait for what is being delivered, then stop. Idempotent; afterwards `record` drops.

        With a state directory only what is due is waited for, the rest leaves in a later run; without one
        everything is flushed.

        Args:
            timeout: longest wait, seconds; by default ``exit_timeout_s``.

        Returns:
            Whether nothing is left on the device.
        """
        if self._closed:
            return True
        limit_s = self.exit_timeout_s if timeout is None else timeout
        deadline = time.monotonic() + limit_s
        self._sender.finish(limit_s)
        left = self.pending_reports()
        self._closed = True
        if self._sender.join(max(0.05, deadline - time.monotonic())):
            self._owner.release()
            self._state.close()
        return left == 0

    def finish_at_exit(self, timeout_s: float) -> None:
        """Called at the end of the process; see `dither_client.lifecycle`."""
        if self._closed:
            return
        self._sender.finish(timeout_s)
        if self._sender.join(_THREAD_END_S):
            self._owner.release()
            self._state.close()

    def renew_in_child(self) -> None:
        """Called in a forked child; see `dither_client.lifecycle`."""
        self._count_lock = threading.RLock()
        self._counts = Counter()
        self._state.forget_parent()
        self._owner = Owner(self._folder)
        self._sender.after_fork(self._owner)

    # For the person at the device

    def set_consent(self, agrees: bool) -> None:
        """Keep the person's decision. A no stops all sending and erases the queue and what is memoised (P8).

        The ledger stays. Memoised metrics start anew after a new yes, and are charged anew.

        Raises:
            StateError: it could not be written. This process sends nothing more all the same.
        """
        self._consent.decide(agrees)
        if agrees and (self._source.next_fetch_at is not None or self.pending_reports()):
            self._sender.wake()

    def pending(self) -> Pending:
        """Exactly what is going to leave the device, of all processes that share the state.

        Raises:
            StateError: the state cannot be read now.
        """
        with self._state.transaction() as connection:
            return Pending(*outbox.contents(connection))

    def pending_reports(self) -> int:
        """How many reports of this process are on the device and not delivered yet."""
        return 0 if self._off() else self._sender.pending_reports()

    def privacy_ledger(self) -> "PrivacyLedger":
        """What this device has spent, per metric, window, day and life, and what is left.

        Raises:
            StateError: the state cannot be read now.
        """
        from dither_client import spending  # noqa: PLC0415  nobody looks at the ledger at the start

        today, registry = self._clock().astimezone(UTC).date(), self._source.current
        with self._state.transaction() as connection:
            return spending.summary(connection, today, self._recorder.limits(registry), registry)

    def explain(self, metric: str) -> str:
        """One metric in plain words: what is asked, how often the answer is a lie, what can be learnt.

        Raises:
            UnknownMetricError: there is no registry yet, or no metric of this name in it.
        """
        from dither_client.explain import explain  # noqa: PLC0415  not at the start

        registry = self._source.current
        if registry is None:
            raise UnknownMetricError("there is no registry yet")
        return explain(registry.metric(metric), registry)

    def stats(self) -> dict[str, int]:
        """Counts since the start, for the app's own use.

        Answers by status (``queued``, ``dropped:queue_full``, ...), and reports by what became of them:
        ``sent``, ``duplicate``, ``rejected``, ``dropped:<reason>``, and tries by ``retry:<reason>``. Registries that
        were not taken by ``registry_refused:<reason>``.
        """
        with self._count_lock:
            counts = Counter(self._counts)
        # Copied in one step each: the sender's thread may be counting something new.
        counts.update(dict(self._sender.totals))
        refused = dict(self._source.refused)
        counts.update({f"registry_refused:{reason}": times for reason, times in refused.items()})
        return dict(counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        registry = self._source.current
        project = registry.project if registry is not None else None
        return f"<Client project={project!r} state={'memory' if self._folder is None else 'disk'}>"
