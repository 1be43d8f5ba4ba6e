"""The one place that speaks HTTP. Every answer and every failure becomes one of a few outcomes.

`requests` is imported when the first batch is sent: importing it costs more than all the rest of the SDK.
"""

import hashlib
import ipaddress
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests

CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 10.0
ANSWER_LIMIT_S: Final = 20.0
MAX_RETRY_AFTER_S: Final = 3600.0
_MAX_RECEIPT_BYTES: Final = 1 << 20
_MAX_REGISTRY_BYTES: Final = 8 << 20

_IMPORT_PATIENCE_S: Final = 5.0
_import_lock = threading.RLock()
"""Held while requests is imported: a child that is forked meanwhile could never import it, since Python's lock of a
half imported module is inherited from a thread that the child does not have."""

_FINAL: Final = frozenset({400, 401, 403, 404, 405, 410, 415, 422})


class Delivered(NamedTuple):
    """The server has the batch, durably."""

    accepted: int
    duplicate: bool
    rejected: int


class Retry(NamedTuple):
    """Not now: the same bytes again later, not before ``after_s`` seconds where the server named a time.

    Attributes:
        reason: ``network:...`` or ``http:<status>``.
        after_s: what the server asked for.
        answered: whether the answer says that the server did not take the batch. Silence does not say so, nor does
            a gateway, nor a server that lost its store on the way.
    """

    reason: str
    after_s: float | None = None
    answered: bool = True


class TooLarge(NamedTuple):
    """The server takes no body of this size."""

    reason: str = "http:413"


class Refused(NamedTuple):
    """Never: the same bytes would fail again."""

    reason: str


Outcome = Delivered | Retry | TooLarge | Refused


class Fetched(NamedTuple):
    """A registry as the server publishes it.

    Attributes:
        document: its JSON; of the signed form the text of the answer, empty where the server has none. None where it is
            the one that the caller has already.
        etag: its entity tag; empty where the server's is none of the bytes that it sent.
    """

    document: Any
    etag: str


class Transport(Protocol):
    """What the sender needs. Nothing here raises for trouble of the network."""

    def send(self, body: bytes) -> Outcome:
        """Try to deliver one batch, once."""

    def fetch_registry(self, etag: str, *, signed: bool = False) -> Fetched | None:
        """The published registry, or None where it cannot be had now; ``signed`` asks for the signed form."""

    def close(self) -> None:
        """Release connections."""

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone."""


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


def wait_before_fork() -> None:
    """Let an import that is under way end; called by the fork hook, before it takes any other lock."""
    _import_lock.acquire(timeout=_IMPORT_PATIENCE_S)


def go_on_in_parent() -> None:
    """Allow imports again; called by the fork hook."""
    with suppress(RuntimeError):  # patience was lost before the import ended
        _import_lock.release()


def renew_in_child() -> None:
    """The child has a lock of its own; called by the fork hook."""
    global _import_lock  # noqa: PLW0603  one lock for the process, and this is another process
    _import_lock = threading.RLock()


@contextmanager
def importing() -> Iterator[None]:
    """Around an import that a thread of the SDK makes late: no fork happens in the middle of it."""
    with _import_lock:
        yield


class HttpTransport:
    """Sends batches to ``POST {endpoint}/v1/reports``.

    Args:
        endpoint: base URL of the server, https (plain http to loopback only).
        ingest_key: the app's key, sent as a bearer token.
        fresh_connections: whether every request opens a connection of its own, so that two of them are not
            linked by sharing one.
    """

    def __init__(self, endpoint: str, ingest_key: str, *, fresh_connections: bool = False) -> None:
        self._base = check_endpoint(endpoint)
        self._ingest_key = ingest_key
        self._fresh_connections = fresh_connections
        self._session: requests.Session | None = None

    def _connected(self) -> "requests.Session":
        if self._session is None:
            with importing():
                import requests  # noqa: PLC0415  100 ms, paid only by a process that sends

            self._session = requests.Session()
            self._session.headers.clear()  # the library's own would tell its version (invariant P5)
            self._session.headers["User-Agent"] = "dither"
        return self._session

    def _authorize(self, request: "requests.PreparedRequest") -> "requests.PreparedRequest":
        # As a callable: a plain header would be replaced by whatever ~/.netrc says about the host.
        request.headers["Authorization"] = f"Bearer {self._ingest_key}"
        return request

    def _request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, limit: int
    ) -> "Answer":
        """One request with its whole answer.

        Raises:
            requests.RequestException, urllib3 HTTPError, OSError: trouble of the network, or an answer that takes
                too long or is too large.
        """
        session = self._connected()
        try:
            with session.request(
                method,
                self._base + path,
                data=body,
                headers=headers,
                auth=self._authorize,
                timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
                allow_redirects=False,
                stream=True,
            ) as answer:
                return Answer(answer.status_code, dict(answer.headers.lower_items()), _read(answer, limit))
        finally:
            if self._fresh_connections:
                self.close()

    def send(self, body: bytes) -> Outcome:
        """Try to deliver one batch; see `Transport`."""
        self._connected()
        # Both are loaded by now; they are named only here, so that a process that sends nothing loads neither.
        from requests import RequestException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            headers = {"Content-Type": "application/json"}
            return outcome_of(self._request("POST", "/v1/reports", headers, body, _MAX_RECEIPT_BYTES))
        except (RequestException, HTTPError, OSError) as error:
            return Retry(f"network:{type(error).__name__}", answered=False)

    def fetch_registry(self, etag: str, *, signed: bool = False) -> Fetched | None:
        """The published registry; see `Transport`."""
        self._connected()
        from requests import RequestException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        headers = {"If-None-Match": etag} if etag else {}
        path = "/v1/registry/signed" if signed else "/v1/registry"
        try:
            answer = self._request("GET", path, headers, None, _MAX_REGISTRY_BYTES)
        except (RequestException, HTTPError, OSError):
            return None
        if answer.status == 304 and etag:
            return Fetched(None, etag)
        if signed:
            return _signed(answer)
        document = _json(answer.body) if answer.status == 200 else None
        return None if document is None else Fetched(document, _own_tag(answer))

    def close(self) -> None:
        """Close the pooled connections."""
        session, self._session = self._session, None
        if session is None:
            return
        for adapter in session.adapters.values():
            pools = getattr(getattr(adapter, "poolmanager", None), "pools", {})
            # Each by hand: urllib3 leaves it to finalizers, which do nothing any more when the process is ending.
            for key in list(pools.keys()):
                pools[key].close()
        session.close()

    def after_fork(self) -> None:
        """Forget the parent's connections: what is sent on them would mix with what the parent sends."""
        self._session = None


class Answer(NamedTuple):
    """An HTTP answer: status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes


def entity_tag(body: bytes) -> str:
    """The tag that Dither's server gives to a registry: of its bytes alone, the same for every device."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _own_tag(answer: Answer) -> str:
    """The tag of an answer if it says nothing but what was answered, else none.

    A server could give each device a tag of its own, and would have it back with every fetch (invariant P5).
    """
    tag = answer.headers.get("etag", "")
    return tag if tag.removeprefix("W/") == entity_tag(answer.body) else ""


def _signed(answer: Answer) -> Fetched | None:
    """The signed form as text: it is read by whoever checks it. Empty where the server says that there is none."""
    if answer.status == 200:
        return Fetched(answer.body.decode("utf-8", "replace"), _own_tag(answer))
    return Fetched("", "") if answer.status == 404 else None


def _read(answer: "requests.Response", limit: int) -> bytes:
    """The body, within a limit of bytes and of time: a server that drips must not hold the sender for ever."""
    deadline = time.monotonic() + ANSWER_LIMIT_S
    body = b""
    while chunk := answer.raw.read1(65_536):
        body += chunk
        if len(body) > limit or time.monotonic() > deadline:
            raise OSError("the answer is too long, or takes too long")
    return body


def _json(body: bytes) -> Any:
    """Parsed JSON, or None where it is none."""
    import json  # noqa: PLC0415  not needed before the first answer

    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def outcome_of(answer: Answer) -> Outcome:
    """What the answer to a batch means."""
    if answer.status == 202:
        return _delivered(answer.body)
    if answer.status == 413:
        return TooLarge()
    if answer.status in _FINAL:
        return Refused(f"http:{answer.status}")
    # Everything else is not our server speaking, or not yet: a hotel's login page, a redirect, an overload. Of these
    # only a quota is decided before the batch is looked at; behind any other the batch may have been taken.
    after_s = retry_after_s(answer.headers.get("retry-after"))
    return Retry(f"http:{answer.status}", after_s, answered=answer.status == 429)


def _delivered(body: bytes) -> Outcome:
    """Read a 202; one that is not our server's is no receipt, and the batch is kept."""
    answer = _json(body)
    if isinstance(answer, dict):
        accepted, duplicate, rejected = (answer.get(key) for key in ("accepted", "duplicate", "rejected"))
        if type(accepted) is int and type(duplicate) is bool and isinstance(rejected, list):
            return Delivered(accepted, duplicate, len(rejected))
    return Retry("answer:not-a-receipt", answered=False)


def retry_after_s(value: str | None, now: float | None = None) -> float | None:
    """Seconds from a Retry-After header in either form (RFC 9110 section 10.2.3), at most an hour.

    Args:
        value: the header.
        now: seconds since the epoch, for the form that is a date.

    Returns:
        None where it says nothing that could be followed.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER_S)
    if not text.endswith("GMT"):
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  rare, and not free to import

    try:
        at = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, at - (time.time() if now is None else now)), MAX_RETRY_AFTER_S)
