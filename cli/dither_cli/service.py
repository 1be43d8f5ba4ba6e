"""The whole service as one object: for `dither serve`, `dither demo`, and tests.

with Service.start(registry, state_dir=folder) as service:
    post(service.base_url, service.ingest_key)
"""

import importlib.util
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from dither_cli.address import Address
from dither_cli.credentials import ensure_credentials
from dither_cli.embedded_store import EmbeddedStore
from dither_cli.errors import NotReadyError
from dither_cli.files import write_private
from dither_cli.parts import (
    STOP_LIMITS_S,
    child_environ,
    estimator_spec,
    example_registry,
    ingest_spec,
    problem_at,
)
from dither_cli.processes import end_leftovers
from dither_cli.state_dir import StateDir
from dither_cli.supervisor import Supervisor
from dither_protocol.registry.envelope import open_registry

READY_LIMIT_S: Final = 60.0
"""How long a service whose children all run may take to call itself ready, seconds."""

_POLL_S: Final = 0.1
_CHILDRENS_MODULES: Final = (
    "gunicorn",
    "flask",
    "msgspec",
    "prometheus_client",
    "redis",
    "numpy",
    "scipy",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceOptions:
    """What to run, and where.

    Attributes:
        state_dir: created where it is missing.
        registry: a file, TOML or the signed form; None for the example registry.
        host: address to listen on.
        port: 0 for any free one.
        workers: gunicorn workers.
        store_url: an external store; None for the embedded one.
        store_maxmemory: memory limit of the embedded store, in its own notation.
        archive: folder of the archive; None for none.
        environ: environment of the children.
    """

    state_dir: Path
    registry: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    workers: int = 2
    store_url: str | None = field(default=None, repr=False)  # may hold a password
    store_maxmemory: str = "1gb"
    archive: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)


class Service:
    """Store, server and estimator under one supervisor. Leaving the context stops them in order.

    Creating one checks everything that can be checked before anything is started, takes the lock of the state
    directory, and ends what a killed serve left there.

    Attributes:
        project: name in the registry.
        state: the locked state directory.
        address: where the server listens.
        store_url: where the store is, as redis-py takes it.

    Raises:
        ModuleNotFoundError: a package of the extra `cli` is not installed.
        OSError: the registry cannot be read.
        RegistryError: the registry breaks a rule.
        ServeError: see `dither_cli.errors`.
    """

    def __init__(self, options: ServiceOptions) -> None:
        require(_CHILDRENS_MODULES)
        if options.archive is not None:
            require(("pyarrow",))
        registry = (options.registry or example_registry()).read_bytes()
        self.project = open_registry(registry)[0].project
        self.state = StateDir(options.state_dir).open()
        self._store: EmbeddedStore | None = None
        try:
            if options.store_url is None:
                self._store = EmbeddedStore(self.state.path, options.store_maxmemory)
            end_leftovers(self.state.processes, STOP_LIMITS_S, _log.warning)
            if self._store is not None:
                self._store.end_forgotten(_log.warning)
            self.address = Address.free(options.host, options.port)
            # Children that are restarted read this copy: what was checked, not what is edited meanwhile.
            write_private(self.state.registry, registry.decode("utf-8"))
            self._credentials = ensure_credentials(self.state.keys, self.state.env, self.base_url)
            self.store_url = self._store.url if self._store is not None else str(options.store_url)
            self._supervisor = self._supervise(options)
        except BaseException:
            self._close()
            raise

    @classmethod
    def start(
        cls,
        registry: Path | None = None,
        *,
        state_dir: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        workers: int = 2,
        store_url: str | None = None,
        store_maxmemory: str = "1gb",
    ) -> Self:
        """Start the service and return when it is ready; the arguments are those of `ServiceOptions`."""
        options = ServiceOptions(state_dir, registry, host, port, workers, store_url, store_maxmemory)
        service = cls(options)
        try:
            service.launch()
            service.wait_ready()
        except BaseException:
            service.stop()
            raise
        return service

    @property
    def base_url(self) -> str:
        """Where clients reach it."""
        return self.address.base_url

    @property
    def ingest_key(self) -> str:
        """The secret that devices send."""
        return self._credentials.ingest_key

    @property
    def operator_token(self) -> str:
        """The secret that reads estimates."""
        return self._credentials.operator_token

    @property
    def dashboard_url(self) -> str:
        """The address that opens the dashboard. It contains the operator token, as notebooks do it."""
        return f"{self.base_url}/login?token={self.operator_token}"

    @property
    def processes(self) -> dict[str, int]:
        """Process ids of the children that run, by name; ``ingest`` is gunicorn's master."""
        return self._supervisor.processes

    def launch(self) -> None:
        """Begin to start the children; returns at once."""
        self._supervisor.start()

    def wait_ready(self) -> bool:
        """Wait until ``/readyz`` answers 200.

        Returns:
            False if it was asked to stop instead.

        Raises:
            ServeError: a child gave up, or the service stays unready.
        """
        running_since: float | None = None
        while not self._supervisor.finished.wait(_POLL_S):
            if not self._supervisor.ready:
                running_since = None
                continue
            problem = problem_at(self.base_url + "/readyz")
            if problem is None:
                return True
            running_since = running_since or time.monotonic()
            if time.monotonic() - running_since > READY_LIMIT_S:
                raise NotReadyError(f"the service runs but is not ready after {READY_LIMIT_S:g} s: {problem}")
        self._raise_failure()
        return False

    def wait(self) -> None:
        """Wait until it has stopped.

        Raises:
            ServeError: it stopped because a child could not be kept running.
        """
        while not self._supervisor.finished.wait(_POLL_S):
            pass  # in short waits, so that signal handlers run in between
        self.stop()
        self._raise_failure()

    def request_stop(self) -> None:
        """Ask for the ordered stop and return at once. Safe in a signal handler."""
        self._supervisor.request_stop()

    def hasten(self) -> None:
        """Stop with little patience. Safe in a signal handler."""
        self._supervisor.hasten()

    def stop(self) -> None:
        """Stop ingest, estimator and store in this order, and unlock the state directory."""
        self._supervisor.stop()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _supervise(self, options: ServiceOptions) -> Supervisor:
        specs = [] if self._store is None else [self._store.spec()]
        needs = tuple(spec.name for spec in specs)
        environ = child_environ(options.environ, self.store_url)
        if self._store is not None:
            environ["DITHER_STORE_PATH"] = str(self._store.directory)
        specs.append(ingest_spec(self.state, self.address, options.workers, environ, needs=needs))
        archive = {} if options.archive is None else {"DITHER_ARCHIVE": str(options.archive.absolute())}
        specs.append(estimator_spec(self.state, {**environ, **archive}, needs=needs))
        names = {spec.name for spec in specs}
        return Supervisor(
            specs,
            stop_order=[name for name in STOP_LIMITS_S if name in names],
            log_dir=self.state.logs,
            record=self.state.processes,
        )

    def _close(self) -> None:
        """Once: as soon as the directory is unlocked, what lies in it may be another serve's."""
        if self.state.locked:
            if self._store is not None:
                self._store.clean()
            self.state.close()

    def _raise_failure(self) -> None:
        if self._supervisor.failure is not None:
            raise self._supervisor.failure


def require(modules: tuple[str, ...]) -> None:
    """Fail now, and by name, rather than in a child.

    Raises:
        ModuleNotFoundError: one of ``modules`` is not installed.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
