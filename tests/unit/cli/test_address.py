import socket

import pytest

from dither_cli.address import Address
from dither_cli.errors import AddressError
from dither_cli.exit_codes import ExitCode


def test_port_zero_picks_a_free_one() -> None:
    """What was picked can be listened on."""
    address = Address.free("127.0.0.1", 0)
    with socket.create_server((address.host, address.port)):
        assert address.port > 0


def test_a_taken_port_is_refused_by_its_number() -> None:
    """The message says which host and port, and why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1 port {port}: ") as caught:
            Address.free("127.0.0.1", port)
    assert caught.value.exit_code == ExitCode.PORT


def test_a_host_that_is_not_here_is_refused() -> None:
    """An address of documentation belongs to no machine (RFC 5737)."""
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1 port 8787"):
        Address.free("192.0.2.1", 8787)


@pytest.mark.parametrize(
    ("host", "bind", "url", "local"),
    [
        ("127.0.0.1", "127.0.0.1:8787", "http://127.0.0.1:8787", True),
        ("localhost", "localhost:8787", "http://localhost:8787", True),
        ("::1", "[::1]:8787", "http://[::1]:8787", True),
        ("0.0.0.0", "0.0.0.0:8787", "http://127.0.0.1:8787", False),
        ("::", "[::]:8787", "http://[::1]:8787", False),
        ("telemetry.example.org", "telemetry.example.org:8787", "http://telemetry.example.org:8787", False),
    ],
)
def test_what_follows_from_an_address(host: str, bind: str, url: str, local: bool) -> None:
    """IPv6 wants brackets; a server on all addresses is reached by the loopback one."""
    address = Address(host, 8787)
    assert (address.bind, address.base_url, address.local) == (bind, url, local)
