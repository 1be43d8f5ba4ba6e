"""The one place that speaks HTTP. Every answer and every failure becomes one of three outcomes.

`requests` is imported when the first batch is sent: importing it costs more than all the rest of the SDK.
"""

import ipaddress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests

CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 10.0
MAX_RETRY_AFTER_S: Final = 3600.0
_MAX_ANSWER_BYTES: Final = 1 << 20

_RETRYABLE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Delivered(NamedTuple):
    """The server has the batch, durably."""

    accepted: int
    duplicate: bool
    rejected: int


class Retry(NamedTuple):
    """Not now: the same bytes again later, not before ``after_s`` seconds where the server named a time."""

    reason: str
    after_s: float | None = None


class Refused(NamedTuple):
    """Never: the same bytes would fail again."""

    reason: str


Outcome = Delivered | Retry | Refused


class Transport(Protocol):
    """What the sender needs: send these bytes once, and say what came of it. Never raises for the network."""

    def send(self, body: bytes) -> Outcome:
        """Try to deliver one batch."""

    def close(self) -> None:
        """Release connections."""


def check_endpoint(endpoint: str) -> str:
    """The base URL without a trailing slash.

    Raises:
        ValueError: no http(s) URL, or plain http to anything but a loopback address.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the endpoint must be an https URL")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the endpoint must be a plain URL, without user, query or fragment")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError("plain http is for loopback addresses only; use https")
    return endpoint.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpTransport:
    """Sends batches to ``POST {endpoint}/v1/reports``.

    Args:
        endpoint: base URL of the server, https (plain http to loopback only).
        ingest_key: the app's key, sent as a bearer token.
    """

    def __init__(self, endpoint: str, ingest_key: str) -> None:
        self._url = check_endpoint(endpoint) + "/v1/reports"
        self._ingest_key = ingest_key
        self._session: requests.Session | None = None

    def _connected(self) -> "requests.Session":
        if self._session is None:
            import requests  # noqa: PLC0415  100 ms, paid only by a process that sends

            self._session = requests.Session()
            self._session.headers.clear()  # the library's own would tell its version (invariant P5)
            self._session.headers.update({"User-Agent": "dither", "Content-Type": "application/json"})
        return self._session

    def _authorize(self, request: "requests.PreparedRequest") -> "requests.PreparedRequest":
        # As a callable: a plain header would be replaced by whatever ~/.netrc says about the host.
        request.headers["Authorization"] = f"Bearer {self._ingest_key}"
        return request

    def send(self, body: bytes) -> Outcome:
        """Try to deliver one batch; see `Transport`."""
        session = self._connected()
        # Both are loaded by now; they are named only here, so that a process that sends nothing loads neither.
        from requests import RequestException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            answer = session.post(
                self._url,
                data=body,
                auth=self._authorize,
                timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
                allow_redirects=False,
                stream=True,
            )
            with answer:
                return _outcome(answer.status_code, answer.headers, answer.raw.read(_MAX_ANSWER_BYTES))
        except (RequestException, HTTPError, OSError) as error:
            return Retry(f"network:{type(error).__name__}")

    def close(self) -> None:
        """Close the pooled connections."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _outcome(status: int, headers: Any, body: bytes) -> Outcome:
    if status == 202:
        return _delivered(body)
    if status in _RETRYABLE:
        return Retry(f"http:{status}", _retry_after_s(headers.get("Retry-After")))
    return Refused(f"http:{status}")


def _delivered(body: bytes) -> Outcome:
    """Read a 202; one that is not our server's is no receipt, and the batch is kept."""
    import json  # noqa: PLC0415  not needed before the first answer

    try:
        answer = json.loads(body)
        accepted, duplicate, rejected = answer["accepted"], answer["duplicate"], answer["rejected"]
        if type(accepted) is int and type(duplicate) is bool and type(rejected) is list:
            return Delivered(accepted, duplicate, len(rejected))
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return Retry("answer:not-a-receipt")


def _retry_after_s(value: str | None) -> float | None:
    """Seconds from a Retry-After header in its number form, at most an hour; None where it says nothing."""
    if value is None or not value.strip().isascii() or not value.strip().isdigit():
        return None
    return min(float(value), MAX_RETRY_AFTER_S)
