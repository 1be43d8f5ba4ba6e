"""Where the store is that a command is about: a URL, or that of a `dither serve` on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import click

from dither_cli.embedded_store import socket_path
from dither_cli.errors import ServeError
from dither_cli.exit_codes import ExitCode
from dither_estimator.store import Store, StoreUnavailableError
from dither_protocol.errors import DitherError
from dither_protocol.store_url import StoreUrlError


class NoStore(ServeError):
    """There is no store to talk to, or it cannot be used; the message says why."""


@contextmanager
def opened_store(url: str | None, state_dir: Path) -> Iterator[Store]:
    """Open a store, and say in one sentence why that, or anything inside, is not possible.

    Args:
        url: of the store; None for the embedded one of the state directory.
        state_dir: of a `dither serve`.
    """
    try:
        store = Store(url or _embedded_url(state_dir))
        try:
            if store.open() is None:
                raise NoStore("no server has used this store yet")
            yield store
        finally:
            store.close()
    except StoreUrlError as error:  # never with the URL, which may hold a password
        raise click.BadParameter(f"{error}", param_hint="--store") from None
    except StoreUnavailableError as error:
        where = "the store" if url else f"the store of dither serve in {state_dir}"
        fail(f"{where} does not answer: {error}", ExitCode.SERVICE)
    except ServeError as error:
        fail(str(error), error.exit_code)
    except DitherError as error:
        fail(str(error), ExitCode.FAILED)


def _embedded_url(state_dir: Path) -> str:
    socket = socket_path(state_dir.expanduser().absolute())
    if not socket.exists():
        raise NoStore(
            f"no dither serve runs in {state_dir}; start it, name another --state-dir, "
            "or give the URL of the store with --store"
        )
    return "unix://" + quote(str(socket))


def fail(message: str, code: ExitCode) -> None:
    """Say why on stderr and exit."""
    click.echo(f"dither store: {message}", err=True)
    raise SystemExit(code)
