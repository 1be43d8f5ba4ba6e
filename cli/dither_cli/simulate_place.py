"""Which server a simulation loads, and with which keys; the rooms of one that it starts itself."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from dither_cli.api_client import Api, ApiError
from dither_cli.credentials import read_exports
from dither_cli.exit_codes import ExitCode
from dither_cli.state_dir import StateDir
from dither_client.transport import check_endpoint
from dither_protocol.errors import RegistryError
from dither_protocol.registry import parse_registry

_VERSION: Final = re.compile(r"^version = ([0-9]+)", re.MULTILINE)
_VARIABLES: Final = ("DITHER_INGEST_KEY", "DITHER_OPERATOR_TOKEN")


class Target(NamedTuple):
    """A server under load.

    Attributes:
        url: base URL.
        ingest_key: what devices send.
        api: its operator side.
    """

    url: str
    ingest_key: str
    api: Api


def find_target(
    server: str | None,
    ingest_key: str | None,
    operator_key: str | None,
    state_dir: Path | None,
    *,
    environ: Mapping[str, str],
    allow_remote: bool,
) -> Target | None:
    """The server that the options name; None where none is named, and one is to be started.

    A key goes to the server that it was given with: those of the environment, which `dither serve` writes into one
    file, to DITHER_ENDPOINT alone, and those of a state directory to the address from there.

    Raises:
        ApiError: it cannot be loaded as given.
    """
    if server and state_dir:
        raise ApiError("give --server or --state-dir, not both", ExitCode.USAGE)
    given: Mapping[str, str] = {}
    if state_dir is not None:
        given = read_exports(StateDir(state_dir).env)
        server = given.get("DITHER_ENDPOINT")
        if server is None:
            raise ApiError(f"no dither serve was started in {state_dir}", ExitCode.STATE_DIR)
    elif server is not None and server.rstrip("/") == environ.get("DITHER_ENDPOINT", "").rstrip("/"):
        given = environ
    if server is None:
        return None
    ingest, operator = (
        key or given.get(name) for key, name in zip((ingest_key, operator_key), _VARIABLES, strict=True)
    )
    if not ingest or not operator:
        raise ApiError("a server needs --key (of devices) and --operator-key (of a viewer)", ExitCode.USAGE)
    try:
        url = check_endpoint(server)
    except ValueError as error:
        raise ApiError(f"{error}; see --server", ExitCode.USAGE) from None
    if urlsplit(url).scheme != "http" and not allow_remote:  # plain http goes to loopback addresses only
        raise ApiError(
            "this may be another machine: load it with its owner's leave, by --allow-remote", ExitCode.USAGE
        )
    return Target(url, ingest, Api(url, operator))


def successor(text: str) -> str | None:
    """A registry in TOML whose first metric is one version on, so that the given one is an old version of it.

    Returns:
        None where it cannot be made so.
    """
    newer = _VERSION.sub(lambda match: f"version = {int(match[1]) + 1}", text, count=1)
    try:
        before, after = parse_registry(text), parse_registry(newer)
    except RegistryError:
        return None
    changed = [name for name in after.metrics if after.metrics[name].version != before.metrics[name].version]
    return newer if len(changed) == 1 else None
