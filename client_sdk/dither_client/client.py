"""The client: what an app holds. `record()` randomises an answer on the spot and forgets it."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from dither_client import ledger, outbox
from dither_client.ledger import Charge, Limits
from dither_client.results import FlushResult, RecordResult, RecordStatus
from dither_client.sampling import randomize
from dither_client.sender import Sender
from dither_client.state import State
from dither_client.transport import HttpTransport, Transport, check_endpoint
from dither_protocol.registry import Registry, load_registry, registry_from_document
from dither_protocol.registry.metric import Metric
from dither_protocol.windows import Window, last_accepted_date
from dither_protocol.wire import Report, encode_report

DEFAULT_MAX_EPSILON: Final = 8.0
DEFAULT_FLUSH_INTERVAL_S: Final = 30.0
DEFAULT_SHUTDOWN_TIMEOUT_S: Final = 2.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _read_registry(registry: Registry | Mapping[str, Any] | str | Path) -> Registry:
    if isinstance(registry, Registry):
        return registry
    if isinstance(registry, str | Path):
        return load_registry(registry)
    return registry_from_document(registry)


class Client:
    """Collects randomised answers and delivers them in the background.

    Args:
        endpoint: base URL of the server; https, or plain http to a loopback address.
        registry: the app's metrics: a Registry, its JSON form, or the path of a TOML file.
        ingest_key: the app's key for the server.
        state_dir: folder for ledger and queue. None keeps both in memory: an exit loses what was not sent,
            and every start is a new device with a new budget.
        max_epsilon: no metric with a larger epsilon is answered, whatever a registry says (invariant P6).
        max_epsilon_per_day: limit on the sum of epsilons of one UTC day, beside the registry's own.
        max_epsilon_lifetime: limit on the sum of epsilons of this state directory, beside the registry's own.
        flush_interval_s: pause between two deliveries.
        shutdown_timeout_s: how long `shutdown` and the end of a `with` block may take.
        transport: replaces HTTP, for tests.
        clock: gives the time as an aware datetime, for tests.

    Raises:
        ValueError: a bad endpoint, key or limit.
        RegistryError: the registry breaks a rule.
        OSError: the registry file or the state directory cannot be used.
    """

    def __init__(
        self,
        endpoint: str,
        registry: Registry | Mapping[str, Any] | str | Path,
        *,
        ingest_key: str,
        state_dir: str | Path | None = None,
        max_epsilon: float = DEFAULT_MAX_EPSILON,
        max_epsilon_per_day: float | None = None,
        max_epsilon_lifetime: float | None = None,
        flush_interval_s: float = DEFAULT_FLUSH_INTERVAL_S,
        shutdown_timeout_s: float = DEFAULT_SHUTDOWN_TIMEOUT_S,
        transport: Transport | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        check_endpoint(endpoint)
        _check_key(ingest_key)
        _check_limits(max_epsilon, max_epsilon_per_day, max_epsilon_lifetime)
        self._registry = _read_registry(registry)
        self._max_epsilon = max_epsilon
        self._limits = Limits(
            per_day=ledger.strictest(max_epsilon_per_day, self._registry.privacy.max_epsilon_per_day),
            lifetime=ledger.strictest(max_epsilon_lifetime, self._registry.privacy.max_epsilon_lifetime),
        )
        self._clock = clock
        self._shutdown_timeout_s = shutdown_timeout_s
        self._state = State(Path(state_dir) if state_dir is not None else None)
        self._sender = Sender(
            self._state,
            transport or HttpTransport(endpoint, ingest_key),
            lambda: self._clock().astimezone(UTC).date(),
            flush_interval_s,
        )
        self._closed = False
        if self._sender.pending_reports():  # an earlier run left something
            self._sender.start()

    def record(
        self, metric: str, value: bool | str, dimensions: Mapping[str, str] | None = None
    ) -> RecordResult:
        """Answer one metric: randomise, charge the ledger and queue the report in one transaction.

        The raw value lives only inside this call. There is one report per metric, window and dimensions: the
        first stands, whatever later values are. No network is touched.

        Args:
            metric: name of a metric in the registry.
            value: the true answer: a bool for a boolean metric, one of the categories for a categorical.
            dimensions: a value for each dimension that the metric declares.

        Raises:
            UnknownMetricError, ValueTypeError, ValueDomainError, DimensionError: the app asks for something
                that its registry does not have.
        """
        definition = self._registry.metric(metric)
        index = definition.index_of(value)
        canonical = definition.check_dimensions(dimensions)
        now = self._clock()
        window = definition.window_at(now)
        reason = self._refusal(definition, window, now)
        if reason:
            return RecordResult(RecordStatus.DROPPED, reason)
        item = Charge(
            definition.name,
            definition.version,
            window.label,
            repr(canonical),
            ledger.nano_charge(definition.epsilon),
        )
        with self._state.transaction() as connection:
            status = ledger.charge(connection, item, now.astimezone(UTC).date(), self._limits)
            if status is RecordStatus.QUEUED:
                report = Report(
                    metric=definition.name,
                    version=definition.version,
                    params=definition.params_hash,
                    window=window.label,
                    dimensions=dict(canonical),
                    data=randomize(definition.mechanism, index),
                )
                last_date = last_accepted_date(window, definition.late_days)
                outbox.add(connection, definition.period, last_date, encode_report(report))
        if status is RecordStatus.QUEUED:
            self._sender.start()
        return RecordResult(status)

    def _refusal(self, metric: Metric, window: Window, now: datetime) -> str:
        if self._closed:
            return "shut_down"
        if metric.epsilon > self._max_epsilon:
            return "epsilon_above_limit"
        if metric.expired(window) or now >= window.end:
            return "metric_expired"
        return ""

    def flush(self, timeout: float = 5.0) -> FlushResult:
        """Send what is queued now and wait for it.

        Args:
            timeout: longest wait, seconds.

        Returns:
            What happened meanwhile. Reports that could not be sent stay queued.
        """
        if self._closed:
            return FlushResult(0, 0, 0, 0, 0, timed_out=False)
        return self._sender.flush(timeout)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Flush, stop the sender and close the state. Idempotent; afterwards `record` drops.

        Args:
            timeout: longest wait, seconds; by default ``shutdown_timeout_s``.

        Returns:
            Whether everything was delivered.
        """
        if self._closed:
            return True
        limit_s = self._shutdown_timeout_s if timeout is None else timeout
        result = self.flush(limit_s)
        self._closed = True
        if self._sender.stop(timeout_s=limit_s if not result.timed_out else 0.0):
            self._state.close()
        return not result.pending

    def pending_reports(self) -> int:
        """How many reports are on the device and not delivered yet."""
        return 0 if self._closed else self._sender.pending_reports()

    def stats(self) -> dict[str, int]:
        """Reports by what became of them: sent, duplicate, rejected, ``dropped:<reason>``, ``retry:<reason>``."""
        return dict(Counter(self._sender.totals))

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
        return f"<Client project={self._registry.project!r} metrics={len(self._registry.metrics)}>"


def _check_key(ingest_key: str) -> None:
    if not isinstance(ingest_key, str) or not ingest_key.isascii() or not ingest_key.isprintable():
        raise ValueError("the ingest key must be printable ASCII")
    if not ingest_key or " " in ingest_key:
        raise ValueError("the ingest key must be one word")


def _check_limits(*limits: float | None) -> None:
    for limit in limits:
        if limit is not None and (type(limit) not in (int, float) or not 0 < limit < float("inf")):
            raise ValueError("a limit on epsilon must be a finite number above 0")
