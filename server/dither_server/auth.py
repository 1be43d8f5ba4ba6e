"""Who may call what: API keys with a role, known to the server by their SHA-256 only.

The keys file is JSON: ``{"keys": [{"name": "app", "role": "ingest", "sha256": "<64 hex digits>"}]}``. It is read
again when it changes, so a key is added or withdrawn without a restart. Keys are random texts of 256 bits, which
is why a plain hash is enough: there is no dictionary to try.
"""

import hashlib
import hmac
import logging
import re
import secrets
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from dither_server.settings import ConfigurationError

LOOK_INTERVAL_S: Final = 1.0
"""A change of the keys file is seen within so many seconds."""

_LOG: Final = logging.getLogger(__name__)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_KEY_LENGTH: Final = 512
_GONE: Final = (0, 0, 0)  # the stamp of a file that is not there
_PREFIX: Final = re.compile(r"[a-z][a-z0-9]{0,15}", re.ASCII)


class Role(StrEnum):
    """What a key is for. A key has one role: the ingest key travels inside an app that anyone can open."""

    INGEST = "ingest"
    OPERATOR = "operator"


class Unauthenticated(Exception):
    """No key, or one that is not known. ``presented`` says whether the caller sent a bearer key at all."""

    def __init__(self, *, presented: bool) -> None:
        super().__init__("the key is not known" if presented else "a bearer key is required")
        self.presented = presented


class Forbidden(Exception):
    """The key is known and has another role. ``needed`` is the role that was asked for."""

    def __init__(self, needed: Role) -> None:
        super().__init__(f"this key has not the role '{needed}'")
        self.needed = needed


@dataclass(frozen=True)
class NewKey:
    """A fresh key. ``text`` is shown once to the person who made it; only ``sha256`` is kept."""

    text: str
    sha256: str

    def __repr__(self) -> str:
        return f"NewKey(text='***', sha256={self.sha256!r})"


def new_key(prefix: str) -> NewKey:
    """A random key of 256 bits such as ``ingest_Zm9v...``; the prefix tells people what they found.

    Raises:
        ValueError: the prefix is not 1 to 16 lower-case letters and digits.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ValueError("the prefix must be 1 to 16 lower-case letters and digits")
    text = f"{prefix}_{secrets.token_urlsafe(32)}"
    return NewKey(text, key_hash(text))


def key_hash(key: str) -> str:
    """SHA-256 of a key as 64 hex digits: the form in the keys file."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def bearer_key(header: str | None) -> str:
    """The key in an ``Authorization`` header (RFC 6750 section 2.1; the scheme's case does not matter).

    Raises:
        Unauthenticated: no header, another scheme, or no key of possible length in it.
    """
    scheme, _, key = (header or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not 0 < len(key) <= _MAX_KEY_LENGTH:
        raise Unauthenticated(presented=False)
    return key


@dataclass(frozen=True)
class StoredKey:
    """One line of the keys file."""

    name: str
    role: Role
    sha256: str


def parse_keys(text: bytes) -> tuple[StoredKey, ...]:
    """Read a keys file.

    Raises:
        ConfigurationError: it breaks a rule; the message names the key by its place in the list.
    """
    try:
        entries = msgspec.json.decode(text, type=dict[str, list[dict[str, str]]])["keys"]
    except (msgspec.MsgspecError, KeyError, ValueError):
        raise ConfigurationError(
            "keys file", 'must be JSON: {"keys": [{"name", "role", "sha256"}]}'
        ) from None
    found = tuple(_stored_key(f"keys file: keys[{place}]", entry) for place, entry in enumerate(entries))
    if len({key.sha256 for key in found}) != len(found):
        raise ConfigurationError("keys file", "has the same key twice")
    return found


def _stored_key(where: str, entry: dict[str, str]) -> StoredKey:
    if entry.keys() != {"name", "role", "sha256"}:
        raise ConfigurationError(where, "must have name, role and sha256, and nothing else")
    if entry["role"] not in tuple(Role):
        raise ConfigurationError(f"{where}.role", "must be one of " + ", ".join(Role))
    if not _SHA256.fullmatch(entry["sha256"]):
        raise ConfigurationError(f"{where}.sha256", "must be 64 lower-case hex digits")
    return StoredKey(entry["name"], Role(entry["role"]), entry["sha256"])


class Keyring:
    """The keys of one keys file, followed as it changes.

    A new version of the file that cannot be read is logged, and the keys of the last good one stay in force.

    Raises:
        ConfigurationError: at construction, the file cannot be read or breaks a rule.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._look_again_s = 0.0
        try:
            self._stamp = self._look()
            self._keys = parse_keys(path.read_bytes())
        except OSError as error:
            raise ConfigurationError("keys file", f"cannot be read ({error.strerror})") from None

    def _look(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _follow(self) -> None:
        now_s = time.monotonic()
        if now_s < self._look_again_s:
            return
        self._look_again_s = now_s + LOOK_INTERVAL_S
        try:
            stamp = self._look()
        except OSError:
            stamp = _GONE
        if stamp == self._stamp:
            return
        self._stamp = stamp  # before reading: a bad file is reported once, not at every request
        try:
            self._keys = parse_keys(self._path.read_bytes())
        except (OSError, ConfigurationError):
            _LOG.error("the keys file has changed and cannot be read: the earlier keys stay in force")
        else:
            _LOG.info("the keys file has changed: %d keys are in force", len(self._keys))

    def authorize(self, header: str | None, needed: Role) -> StoredKey:
        """The key that an ``Authorization`` header presents, if it has the role ``needed``.

        Every stored hash is compared, each in constant time: how long it takes does not tell which one matched.

        Raises:
            Unauthenticated: no key, or an unknown one.
            Forbidden: a known key of another role.
        """
        presented = key_hash(bearer_key(header))
        self._follow()
        match = None
        for key in self._keys:
            if hmac.compare_digest(key.sha256, presented):
                match = key
        if match is None:
            raise Unauthenticated(presented=True)
        if match.role is not needed:
            raise Forbidden(needed)
        return match
