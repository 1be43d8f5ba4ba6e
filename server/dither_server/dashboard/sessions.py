"""Sessions of the dashboard: a signed cookie that holds no key, and is checked against the keyring at each request.

The cookie is ``name|expires|mac``: the key's name in base64url, Unix seconds, and an HMAC-SHA256. Its key is made of
two things, so that neither of them alone makes a cookie: the stored digest of that operator key, and a secret that the
store keeps. So any process that follows the keys file and reads the store can check it, a session ends with its key,
and all sessions end with the secret. Pure.
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dither_server.auth import StoredKey

SESSION_S: Final = 12 * 3_600
"""How long a session lasts, seconds."""

_COOKIE: Final = re.compile(r"([A-Za-z0-9_-]{0,700}={0,2})\|([0-9]{1,12})\|([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """A person who has shown an operator key.

    Attributes:
        name: of that key.
        csrf: what a form of this session must carry: a page of another site cannot know it.
    """

    name: str
    csrf: str


def new_cookie(key: StoredKey, secret: bytes, now_s: float) -> str:
    """The cookie of a session that begins now.

    Args:
        key: that was shown.
        secret: of the store, 32 bytes.
        now_s: Unix seconds.
    """
    expires = str(int(now_s) + SESSION_S)
    name = urlsafe_b64encode(key.name.encode("utf-8", "surrogatepass")).decode("ascii")
    return f"{name}|{expires}|{_mac(key, secret, 'session', name, expires)}"


def read_cookie(cookie: str | None, keys: Iterable[StoredKey], secret: bytes, now_s: float) -> Session | None:
    """The session of a cookie; None where it is none, is over, or its key is not in force any more.

    Args:
        cookie: as the browser sent it.
        keys: those in force whose holders may see the dashboard. All of them are tried, each in constant time.
        secret: of the store, 32 bytes.
        now_s: Unix seconds.
    """
    found = _COOKIE.fullmatch(cookie or "")
    if found is None:
        return None
    name, expires, mac = found.groups()
    session = None
    for key in keys:
        if hmac.compare_digest(_mac(key, secret, "session", name, expires), mac):
            csrf = _mac(key, secret, "form", name, expires)
            session = Session(urlsafe_b64decode(name).decode("utf-8", "replace"), csrf)
    return session if now_s < int(expires) else None


def _mac(key: StoredKey, secret: bytes, purpose: str, name: str, expires: str) -> str:
    both = hmac.digest(secret, bytes.fromhex(key.sha256), "sha256")
    return hmac.new(both, f"{purpose}|{name}|{expires}".encode(), sha256).hexdigest()
