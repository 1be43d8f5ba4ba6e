"""The ingest key and the operator token of a local service.

The server is given their SHA-256 only (``keys.json``). The plain ones lie in one file that the user's shell can
source (``env``), which is how each start can print them again. Both files have mode 0600 in a directory of mode 0700.
"""

import re
import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dither_cli.errors import StateDirError
from dither_cli.files import write_private
from dither_cli.keys_file import PREFIXES, KeysFile
from dither_server.auth import Role, StoredKey, key_hash, new_key
from dither_server.settings import ConfigurationError

_VARIABLES: Final = {Role.INGEST: "DITHER_INGEST_KEY", Role.ADMIN: "DITHER_OPERATOR_TOKEN"}
_EARLIER_NAME: Final = "default"
"""What both keys were called before names told keys apart."""
_EXPORT: Final = re.compile(r"export ([A-Z_]+)=(.*)")


@dataclass(frozen=True)
class Credentials:
    """The plain secrets. They do not appear in the repr.

    Attributes:
        ingest_key: what devices send.
        operator_token: of an admin: what reads estimates.
    """

    ingest_key: str = field(repr=False)
    operator_token: str = field(repr=False)


def ensure_credentials(keys_file: Path, env_file: Path, endpoint: str) -> Credentials:
    """Create the secrets at the first start, find them at later ones, and write the address into ``env_file``.

    A plain secret that ``keys_file`` does not know any more is replaced; entries of other names stay.

    Raises:
        StateDirError: ``keys_file`` is damaged.
    """
    exported = read_exports(env_file)
    try:
        with KeysFile(keys_file).changing() as keys:
            plain = {role: _ensure(keys, role, exported.get(name, "")) for role, name in _VARIABLES.items()}
    except ConfigurationError as error:
        raise StateDirError(
            f"{keys_file} is damaged ({error}); mend it, or delete it to get new keys"
        ) from None
    lines = {"DITHER_ENDPOINT": endpoint} | {_VARIABLES[role]: secret for role, secret in plain.items()}
    write_private(env_file, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in lines.items()))
    return Credentials(plain[Role.INGEST], plain[Role.ADMIN])


def _ensure(keys: list[StoredKey], role: Role, secret: str) -> str:
    """The secret if it is in force, else a new one in the place of the last one that was made here."""
    today = datetime.now(UTC).date()
    if any(key.role is role and key.sha256 == key_hash(secret) and not key.expired(today) for key in keys):
        return secret
    made = new_key(PREFIXES[role])
    name = f"serve-{role.value}"
    keys[:] = [key for key in keys if key.role is not role or key.name not in (name, _EARLIER_NAME)]
    keys.append(StoredKey(name, role, made.sha256, today))
    return made.text


def read_exports(env_file: Path) -> dict[str, str]:
    """The variables that the file sets; none where it is not there or damaged."""
    try:
        lines = env_file.read_text(encoding="utf-8").splitlines()
        matches = [match for line in lines if (match := _EXPORT.fullmatch(line))]
        return {match[1]: "".join(shlex.split(match[2])) for match in matches}
    except (FileNotFoundError, ValueError):
        return {}
