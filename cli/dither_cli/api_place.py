"""Which server a command asks, and with which key: options, variables, or the `dither serve` on this machine.

A key goes to the server that it was given with, and to no other: one from a state directory only to the address from
there, and DITHER_OPERATOR_TOKEN, which the same file sets, only to DITHER_ENDPOINT.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from dither_cli.api_client import Api, ApiError
from dither_cli.credentials import read_exports
from dither_cli.exit_codes import ExitCode
from dither_cli.state_dir import StateDir, default_state_dir


def api_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options ``url``, ``key`` and ``state_dir`` for a command."""
    url = click.option(
        "--url",
        help="Address of the server.  "
        "[env: DITHER_URL, DITHER_ENDPOINT; default: that of the dither serve on this machine]",
    )
    key = click.option(
        "--key",
        help="Key of a viewer or an admin.  "
        "[env: DITHER_KEY, DITHER_OPERATOR_TOKEN; default: that of this dither serve]",
    )
    state_dir = click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="State directory of that dither serve.  [default: $DITHER_HOME, or the user's state folder]",
    )
    return url(key(state_dir(command)))


@contextmanager
def api_errors(command: str) -> Iterator[None]:
    """What the server does not give is said on stderr, and ends the command with its exit code."""
    try:
        yield
    except ApiError as error:
        click.echo(f"dither {command}: {error}", err=True)
        raise SystemExit(error.exit_code) from None


def find_api(url: str | None, key: str | None, state_dir: Path | None, environ: Mapping[str, str]) -> Api:
    """The server that the options and the environment name.

    Raises:
        ApiError: there is none, or no key for it.
    """
    if url and state_dir:
        raise ApiError("give --url or --state-dir, not both", ExitCode.USAGE)
    key = key or environ.get("DITHER_KEY")
    if state_dir is None:
        if named := url or environ.get("DITHER_URL"):
            return _with_key(named, key, "give --key, or set DITHER_KEY")
        if named := environ.get("DITHER_ENDPOINT"):
            key = key or environ.get("DITHER_OPERATOR_TOKEN")
            return _with_key(named, key, "give --key, or set DITHER_KEY or DITHER_OPERATOR_TOKEN")
    state = StateDir(state_dir or default_state_dir(environ, Path.home()))
    exported = read_exports(state.env)
    if "DITHER_ENDPOINT" not in exported:
        raise ApiError(
            f"no dither serve was started in {state.path}; start it, name another --state-dir, or give --url",
            ExitCode.STATE_DIR,
        )
    return _with_key(exported["DITHER_ENDPOINT"], key or exported.get("DITHER_OPERATOR_TOKEN"), "give --key")


def _with_key(url: str, key: str | None, advice: str) -> Api:
    if not key:
        raise ApiError(f"no key for {url}: {advice}", ExitCode.USAGE)
    return Api(url, key)


def asked_api(url: str | None, key: str | None, state_dir: Path | None) -> Api:
    """`find_api` in the environment of this process."""
    return find_api(url, key, state_dir, os.environ)
