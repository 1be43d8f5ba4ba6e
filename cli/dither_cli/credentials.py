"""The ingest key and the operator token of a local service.

The server is given their SHA-256 only (``keys.json``). The plain ones lie in one file that the user's shell can
source (``env``). Both files have mode 0600 in a directory of mode 0700.
"""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dither_cli.errors import StateDirError
from dither_cli.files import write_private
from dither_server.auth import key_hash, new_key

_ROLES: Final = {"ingest": ("DITHER_INGEST_KEY", "dik"), "operator": ("DITHER_OPERATOR_TOKEN", "dot")}
_EXPORT: Final = re.compile(r"export ([A-Z_]+)=(.*)")


@dataclass(frozen=True)
class Credentials:
    """The plain secrets. They do not appear in the repr.

    Attributes:
        ingest_key: what devices send.
        operator_token: what reads estimates.
    """

    ingest_key: str = field(repr=False)
    operator_token: str = field(repr=False)


def ensure_credentials(keys_file: Path, env_file: Path, endpoint: str) -> Credentials:
    """Create the secrets at the first start, find them at later ones, and write the address into ``env_file``.

    A plain secret that ``keys_file`` does not know any more is replaced; entries of other names stay.

    Raises:
        StateDirError: ``keys_file`` is damaged.
    """
    entries = _read_entries(keys_file)
    exported = _read_exports(env_file)
    plain = {}
    for role, (variable, prefix) in _ROLES.items():
        secret = exported.get(variable, "")
        if not any(entry["role"] == role and entry["sha256"] == key_hash(secret) for entry in entries):
            made = new_key(prefix)
            secret = made.text
            entries = [e for e in entries if (e["role"], e["name"]) != (role, "default")]
            entries.append({"name": "default", "role": role, "sha256": made.sha256})
        plain[role] = secret
    write_private(keys_file, json.dumps({"keys": entries}, indent=1) + "\n")
    lines = {"DITHER_ENDPOINT": endpoint} | {_ROLES[role][0]: secret for role, secret in plain.items()}
    write_private(env_file, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in lines.items()))
    return Credentials(plain["ingest"], plain["operator"])


def _read_entries(keys_file: Path) -> list[dict[str, Any]]:
    try:
        entries = json.loads(keys_file.read_text(encoding="utf-8"))["keys"]
        if not all({"name", "role", "sha256"} <= entry.keys() for entry in entries):
            raise KeyError
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateDirError(f"{keys_file} is damaged; mend it, or delete it to get new keys") from None
    return list(entries)


def _read_exports(env_file: Path) -> dict[str, str]:
    try:
        lines = env_file.read_text(encoding="utf-8").splitlines()
        matches = [match for line in lines if (match := _EXPORT.fullmatch(line))]
        return {match[1]: "".join(shlex.split(match[2])) for match in matches}
    except (FileNotFoundError, ValueError):
        return {}
