"""Where the server listens, and the URLs that follow from it."""

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self

from dither_cli.errors import AddressError


@dataclass(frozen=True)
class Address:
    """A free host and port.

    Attributes:
        host: a name or an address, IPv6 without brackets.
        port: 1 to 65535.
    """

    host: str
    port: int

    @classmethod
    def free(cls, host: str, port: int) -> Self:
        """Check that nothing listens there yet; port 0 picks a free one.

        Raises:
            AddressError: taken, not allowed, or no address of this machine.
        """
        try:
            family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
                return cls(host, probe.getsockname()[1])
        except OSError as error:
            raise AddressError(f"cannot listen on {host} port {port}: {error.strerror}") from None

    @property
    def bind(self) -> str:
        """As gunicorn takes it."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def base_url(self) -> str:
        """As a client on this machine reaches it: the loopback address where it listens on all."""
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://{_bracketed(loopback)}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
