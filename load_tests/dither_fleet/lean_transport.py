"""The SDK's transport over a connection of the standard library: the same outcomes, a third of the processor time.

A load generator that shares a machine with its server must be cheaper than the server. It can also break off.
"""

import socket
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from dither_client.transport import Answer, HttpTransport

_TIMEOUT_S: Final = 30.0


class LeanTransport(HttpTransport):
    """One connection that is kept.

    Args:
        endpoint: base URL of the server, https, or plain http to a loopback address.
        ingest_key: the key of the devices.
    """

    def __init__(self, endpoint: str, ingest_key: str) -> None:
        super().__init__(endpoint, ingest_key)
        parts = urlsplit(self._base)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(str(parts.hostname), parts.port, timeout=_TIMEOUT_S)
        self._path = parts.path
        self._host = parts.netloc

    def _request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, limit: int
    ) -> Answer:
        given = headers | {"Authorization": f"Bearer {self._ingest_key}", "User-Agent": "dither"}
        try:
            self._connection.request(method, self._path + path, body, given)
            answer = self._connection.getresponse()
            text = answer.read(limit + 1)
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise ConnectionError(type(error).__name__) from None
        if len(text) > limit:
            self._connection.close()
            raise ConnectionError("the answer is too long")
        return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, text)

    def abandon(self, body: bytes, *, whole: bool) -> None:
        """Begin to send a batch and leave: before its end, or (``whole``) before the answer."""
        head = (
            f"POST {self._path}/v1/reports HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: dither\r\n"
            f"Authorization: Bearer {self._ingest_key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode("ascii")
        self._connection.close()
        try:
            self._connection.connect()
            connected: socket.socket = self._connection.sock
            connected.sendall(head + (body if whole else body[: len(body) // 2]))
        except (OSError, HTTPException):
            pass  # it was to fail anyway
        finally:
            self._connection.close()

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._connection.close()
