"""``dither keys``: make, list and revoke the keys of apps and people."""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from dither_cli.exit_codes import ExitCode
from dither_cli.keys_file import PREFIXES, KeysFile
from dither_cli.state_dir import StateDir, default_state_dir
from dither_cli.tables import plain_table
from dither_server.auth import Role, StoredKey, new_key
from dither_server.quota import Quota, parse_quota
from dither_server.settings import ConfigurationError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_ROLE: Final = click.Choice([role.value for role in Role])


@click.group(short_help="Make, list and revoke the keys of apps and people.")
def keys() -> None:
    """Make, list and revoke the keys of apps and people.

    An app has an ingest key, which sends reports and reads nothing. A viewer reads estimates; an admin sees the keys
    as well. Running servers follow the keys file within a second. It holds no key, only what recognises one.
    """


def _place(command: Callable[..., None]) -> Callable[..., None]:
    keys_file = click.option(
        "--keys-file",
        envvar="DITHER_KEYS_FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The keys file of a server.  [env: DITHER_KEYS_FILE; default: that of the dither serve on this machine]",
    )
    state_dir = click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="State directory of that dither serve.  [default: $DITHER_HOME, or the user's state folder]",
    )
    return keys_file(state_dir(command))


def _keys_file(keys_file: Path | None, state_dir: Path | None) -> KeysFile:
    """The file that a command is about. One of a state directory is there already, another may be new."""
    if keys_file is not None and state_dir is not None:
        if click.get_current_context().get_parameter_source("keys_file") is ParameterSource.COMMANDLINE:
            raise click.UsageError("give --keys-file or --state-dir, not both")
        keys_file = None  # what was said now goes before what the environment says
    if keys_file is not None:
        return KeysFile(keys_file)
    folder = StateDir(state_dir or default_state_dir(os.environ, Path.home()))
    if not folder.keys.exists():
        _fail(
            f"no dither serve was started in {folder.path}; start it, name another --state-dir, or give --keys-file",
            ExitCode.STATE_DIR,
        )
    return KeysFile(folder.keys)


def _check_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter("must be 1 to 64 letters, digits and ._-, and begin with a letter or digit")
    return value


def _check_quota(_: click.Context, __: click.Parameter, value: str | None) -> Quota | None:
    try:
        return None if value is None else parse_quota(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _check_expires(_: click.Context, __: click.Parameter, value: datetime | None) -> date | None:
    if value is None:
        return None
    if value.date() < _today():
        raise click.BadParameter("this day is over")
    return value.date()


@keys.command()
@click.argument("name", callback=_check_name)
@click.option("--role", required=True, type=_ROLE, help="What it is for.")
@click.option(
    "--quota",
    callback=_check_quota,
    help="Reports that may be sent with it in a minute, hour or day, such as 6000/minute.  [default: any number]",
)
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    callback=_check_expires,
    help="Last day on which it works, in UTC.  [default: none]",
)
@_place
def create(
    *,
    name: str,
    role: str,
    quota: Quota | None,
    expires: date | None,
    keys_file: Path | None,
    state_dir: Path | None,
) -> None:
    """Make a key and print it, this once: KEY=$(dither keys create NAME --role ingest)."""
    if quota is not None and role != Role.INGEST:
        raise click.UsageError("--quota is for ingest keys: the others send nothing")
    file = _keys_file(keys_file, state_dir)
    made = new_key(PREFIXES[Role(role)])
    with _said(file), file.changing() as known:
        if any(key.name == name for key in known):
            _fail(f"there is a key '{name}' already; revoke it first, or choose another name")
        known.append(StoredKey(name, Role(role), made.sha256, _today(), expires, quota))
        click.echo(made.text)  # before it is stored: a key that could not be shown is none
    click.echo(
        f"This is the only time that the {role} key '{name}' is shown; {file.path} has its hash.", err=True
    )


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_place
def list_keys(*, as_json: bool, keys_file: Path | None, state_dir: Path | None) -> None:
    """Show the keys that there are; of their hashes no more than the first digits."""
    file = _keys_file(keys_file, state_dir)
    with _said(file):
        known = file.read()
    if as_json:
        click.echo(json.dumps({"keys": [_document(key) for key in known]}, default=str, indent=1))
        return
    table = plain_table(_COLUMNS, left=_COLUMNS)
    for key in known:
        expires = Text("never" if key.expires is None else str(key.expires))
        if key.expired(_today()):
            expires = Text(f"{key.expires} (expired)", style="red")
        cells = (key.name, key.role.value, key.created or "", expires, key.quota or "", key.key_id)
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells))
    Console(highlight=False).print(table)


@keys.command()
@click.argument("name")
@click.option("--role", type=_ROLE, help="Where keys of several roles have this name: of which one.")
@click.option("--yes", is_flag=True, help="Do not ask before the last admin goes.")
@_place
def revoke(*, name: str, role: str | None, yes: bool, keys_file: Path | None, state_dir: Path | None) -> None:
    """Take a key out of the file: servers refuse it within a second, and sessions that it opened end."""
    file = _keys_file(keys_file, state_dir)
    with _said(file):
        left, _ = _without(file.read(), name, role)
        if not yes and not _has_admin(left) and _has_admin(file.read()):
            click.confirm("This is the last admin. Revoke it all the same?", abort=True, err=True)
        with file.changing() as known:  # not while somebody thinks about an answer
            left, gone = _without(known, name, role)
            known[:] = left
    for key in gone:
        click.echo(f"revoked the {key.role} key '{key.name}' ({key.key_id})", err=True)


_COLUMNS: Final = ("name", "role", "created", "expires", "quota", "id")


def _document(key: StoredKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "role": key.role.value,
        "created": key.created,
        "expires": key.expires,
        "expired": key.expired(_today()),
        "quota": key.quota,
        "id": key.key_id,
    }


def _without(
    known: Sequence[StoredKey], name: str, role: str | None
) -> tuple[list[StoredKey], list[StoredKey]]:
    """Those that stay, and those that go."""
    gone = [key for key in known if key.name == name and role in (None, key.role)]
    if not gone:
        names = ", ".join(sorted({key.name for key in known})) or "none"
        _fail(f"there is no key '{name}'" + (f" of role {role}" if role else "") + f"; there are: {names}")
    roles = sorted({key.role.value for key in gone})
    if len(roles) > 1:
        _fail(f"keys of several roles are named '{name}': add --role {' or --role '.join(roles)}")
    return [key for key in known if key not in gone], gone


def _has_admin(known: Sequence[StoredKey]) -> bool:
    return any(key.role is Role.ADMIN and not key.expired(_today()) for key in known)


def _today() -> date:
    return datetime.now(UTC).date()


@contextmanager
def _said(file: KeysFile) -> Iterator[None]:
    """A keys file that breaks a rule is said by its path."""
    try:
        yield
    except ConfigurationError as error:
        _fail(f"{file.path}: {str(error).removeprefix('keys file: ')}")


def _fail(message: str, code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Say why on stderr and exit."""
    click.echo(f"dither keys: {message}", err=True)
    raise SystemExit(code)
