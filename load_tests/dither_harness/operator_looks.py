"""An operator who looks at everything all the time: API, pages, `/metrics`. What leaks, leaks there as well."""

import threading
import time
from collections import Counter
from itertools import cycle
from typing import Any, Final, Self

import requests

from dither_fleet.latencies import Latencies

_TIMEOUT_S: Final = 30.0
_JOIN_LIMIT_S: Final = 60.0

_API: Final = (
    "/v1/metrics",
    "/v1/privacy",
    "/v1/ledger",
    "/v1/status",
    "/v1/registry",
    "/v1/openapi.json",
    "/v1/keys",
    "/metrics",
    "/healthz",
    "/readyz",
)
_OF_A_METRIC: Final = ("", "/estimates", "/estimates?level=0.9&simultaneous=true", "/quality")
_PAGES: Final = ("/", "/privacy", "/health", "/live/", "/live/health")
_PAGES_OF_A_METRIC: Final = ("", "/estimates.csv", "/history.csv")


class OperatorLooks:
    """Asks for one address after the other, round and round, in a thread of its own. A context manager.

    Args:
        url: of a service that is ready.
        token: of an operator there.
        metrics: names of its metrics.
        every_s: from one request to the next, seconds.

    Attributes:
        answers: by status; 0 where there was none.
        wrong: answers that were neither 200 nor 503, by address and status.
        latencies: of all of them, in one second.
    """

    def __init__(self, url: str, token: str, metrics: list[str], every_s: float) -> None:
        self.answers: Counter[int] = Counter()
        self.wrong: Counter[str] = Counter()
        self.latencies = Latencies()
        self._url, self._token, self._every_s = url, token, every_s
        self._places = places(metrics)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="operator", daemon=True)

    def warm(self, rounds: int = 4) -> None:
        """Some rounds without a pause: each process of the server loads now what it loads but once."""
        with self._session() as session:
            for path in self._places * rounds:
                self._note(session, path)

    def _look(self) -> None:
        with self._session() as session:
            for path in cycle(self._places):
                if self._ended.wait(self._every_s):
                    return
                self._note(session, path)

    def _session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False  # a proxy has no business between a machine and itself
        session.headers["Connection"] = "close"  # so that each process of the server has its share
        session.headers["Authorization"] = f"Bearer {self._token}"  # of the API; pages go by the cookie
        self._note(session, "/login", {"token": self._token})
        return session

    def _note(self, session: requests.Session, path: str, parameters: Any = None) -> None:
        began = time.monotonic()
        try:
            status = session.get(self._url + path, params=parameters, timeout=_TIMEOUT_S).status_code
        except requests.RequestException:
            status = 0
        self.latencies.add(0.0, time.monotonic() - began)
        self.answers[status] += 1
        if status not in (requests.codes.ok, requests.codes.unavailable):
            self.wrong[f"{path}: {status or 'no answer'}"] += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_JOIN_LIMIT_S)


def places(metrics: list[str]) -> list[str]:
    """Every address that is looked at."""
    found = [*_API, *_PAGES]
    for name in metrics:
        found += [f"/v1/metrics/{name}{rest}" for rest in _OF_A_METRIC]
        found += [f"/metrics/{name}{rest}" for rest in _PAGES_OF_A_METRIC]
    return found
