"""Who may call what: API keys with a role, known to the server by their SHA-256 only.

The keys file is JSON: ``{"keys": [{"name": "app", "role": "ingest", "sha256": "<64 hex digits>"}]}``, and optionally
for each key ``created`` and ``expires`` (dates) and ``quota`` (`dither_server.quota`). It is read again when it
changes, so a key is added or withdrawn without a restart.

Keys are random texts of 256 bits, which is why a plain hash is enough. A slow one makes each guess at a password
dear; here there is no dictionary, and 2**256 guesses are out of reach at any price. It would only make requests dear.
"""

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from dither_server.quota import Quota, parse_quota
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
    """Sends reports, and reads nothing."""

    VIEWER = "viewer"
    """Reads what is published, the ledger and the gauges."""

    ADMIN = "admin"
    """A viewer who also sees and changes how the service is run. Sends no reports."""

    def may_act_as(self, needed: "Role") -> bool:
        """Whether a key of this role may do what ``needed`` may."""
        return self is needed or (self is Role.ADMIN and needed is Role.VIEWER)


_OPERATOR: Final = "operator"
"""What keys files said before there were viewers: an admin."""
_ROLES: Final = {role.value: role for role in Role} | {_OPERATOR: Role.ADMIN}


class Unauthenticated(Exception):
    """No key, or one that is not known. ``presented`` says whether the caller sent a bearer key at all."""

    def __init__(self, *, presented: bool) -> None:
        super().__init__("the key is not known" if presented else "a bearer key is required")
        self.presented = presented


class Forbidden(Exception):
    """The key is known and may not do this. ``needed`` is the role that may."""

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
    """One line of the keys file.

    Attributes:
        name: what people call it: the app, or who holds it.
        role: what it is for.
        sha256: of the key, 64 hex digits.
        created: the day on which it was made, UTC; None where the file does not say.
        expires: the last day on which it works, UTC; None for never.
        quota: how much may be sent with it; None for any amount.
    """

    name: str
    role: Role
    sha256: str
    created: date | None = None
    expires: date | None = None
    quota: Quota | None = None

    @property
    def key_id(self) -> str:
        """Names the key where its name might not: 12 hex digits of its hash, which tell nothing about the key."""
        return self.sha256[:12]

    def expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and self.expires < today

    def entry(self) -> dict[str, str]:
        """What the keys file says about it."""
        said = {"created": self.created, "expires": self.expires, "quota": self.quota}
        known = {name: str(value) for name, value in said.items() if value is not None}
        return {"name": self.name, "role": self.role.value, "sha256": self.sha256} | known


def keys_text(keys: Sequence[StoredKey]) -> str:
    """A keys file."""
    return json.dumps({"keys": [key.entry() for key in keys]}, indent=1) + "\n"


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


_REQUIRED: Final = frozenset({"name", "role", "sha256"})
_OPTIONAL: Final = frozenset({"created", "expires", "quota"})


def _stored_key(where: str, entry: Mapping[str, str]) -> StoredKey:
    if not entry.keys() >= _REQUIRED or not entry.keys() <= _REQUIRED | _OPTIONAL:
        allowed = ", ".join(sorted(_OPTIONAL))
        raise ConfigurationError(
            where, f"must have name, role and sha256, may have {allowed}, and nothing else"
        )
    role = _ROLES.get(entry["role"])
    if role is None:
        raise ConfigurationError(f"{where}.role", "must be one of " + ", ".join(Role))
    if not _SHA256.fullmatch(entry["sha256"]):
        raise ConfigurationError(f"{where}.sha256", "must be 64 lower-case hex digits")
    quota = _quota(f"{where}.quota", role, entry["quota"]) if "quota" in entry else None
    created, expires = (_day(f"{where}.{name}", entry.get(name)) for name in ("created", "expires"))
    return StoredKey(entry["name"], role, entry["sha256"], created, expires, quota)


def _day(where: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or str(found) != text:  # not 20261129 or 2026-W48-7 either
        raise ConfigurationError(where, "must be a date such as 2026-11-29")
    return found


def _quota(where: str, role: Role, text: str) -> Quota:
    if role is not Role.INGEST:
        raise ConfigurationError(where, "is for ingest keys only")
    try:
        return parse_quota(text)
    except ValueError as error:
        raise ConfigurationError(where, str(error)) from None


def _now() -> datetime:
    return datetime.now(UTC)


class Keyring:
    """The keys of one keys file, followed as it changes.

    A new version of the file that cannot be read is logged, and the keys of the last good one stay in force.

    Args:
        path: of the file.
        clock: gives the time, aware, in UTC.

    Raises:
        ConfigurationError: at construction, the file cannot be read or breaks a rule.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self._path = path
        self._clock = clock
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

    @property
    def keys(self) -> tuple[StoredKey, ...]:
        """All keys of the file, those that have expired too."""
        self._follow()
        return self._keys

    def having(self, needed: Role) -> tuple[StoredKey, ...]:
        """The keys in force that may do what a role may."""
        today = self._clock().date()
        return tuple(key for key in self.keys if key.role.may_act_as(needed) and not key.expired(today))

    def authorize(self, header: str | None, needed: Role) -> StoredKey:
        """The key that an ``Authorization`` header presents, if it may do what ``needed`` may.

        Every stored hash is compared, each in constant time: how long it takes does not tell which one matched. A key
        that has expired or was withdrawn is answered as one that never was.

        Raises:
            Unauthenticated: no key, or none that is in force.
            Forbidden: a key in force whose role may not do it.
        """
        presented = key_hash(bearer_key(header))
        match = None
        for key in self.keys:
            if hmac.compare_digest(key.sha256, presented):
                match = key
        if match is None or match.expired(self._clock().date()):
            raise Unauthenticated(presented=True)
        if not match.role.may_act_as(needed):
            raise Forbidden(needed)
        return match
