"""The URL of a store: which servers its text names. Pure; each room opens them with its own client.

    redis://[user:password@]host[:port][/db][?option=value]      one server
    rediss://...                                                 the same over TLS
    unix://[user:password@]/path[?option=value]                  the same over a socket of this machine
    cluster://[user:password@]host[:port][,host[:port]...][?..]  a cluster, with the nodes to begin at
    clusters://...                                               the same over TLS

A further ``s`` stands for TLS, as in ``https`` and ``rediss``. The account and the options hold for every node.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

_SERVER_SCHEMES: Final = ("redis", "rediss", "unix")
_CLUSTER_SCHEMES: Final = {"cluster": "redis", "clusters": "rediss"}
"""Schemes of a cluster, with the scheme of each of its nodes."""

STORE_SCHEMES: Final = (*_SERVER_SCHEMES, *_CLUSTER_SCHEMES)


class StoreUrlError(ValueError):
    """The text is no URL of a store. The message says why, and shows nothing of a text that may hold a password."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """What a URL names.

    Attributes:
        clustered: whether it is a cluster.
        urls: ``redis://``, ``rediss://`` or ``unix://`` URL of the server, or of each node to begin at.
    """

    clustered: bool
    urls: tuple[str, ...] = field(repr=False)  # may hold a password


def parse_store_url(text: str) -> StoreUrl:
    """Read the URL of a store.

    Raises:
        StoreUrlError: it is none.
    """
    scheme, divider, rest = text.partition("://")
    if not divider or scheme not in STORE_SCHEMES:
        raise StoreUrlError("must begin with " + ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES))
    if scheme in _SERVER_SCHEMES:
        parts = _split(text)
        if not (parts.path if scheme == "unix" else parts.hostname):
            raise StoreUrlError("names no server")
        if scheme != "unix" and not _is_database(parts.path):  # it may be half a password with a '/' in it
            raise StoreUrlError("names a database that is no number")
        return StoreUrl(clustered=False, urls=(text,))
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    account, at, hosts = rest[:end].rpartition("@")
    if "@" in account:
        raise StoreUrlError(
            "has more than one '@': one account holds for all nodes, %40 stands for '@' in it"
        )
    urls = tuple(f"{_CLUSTER_SCHEMES[scheme]}://{account}{at}{host}{rest[end:]}" for host in hosts.split(","))
    for url in urls:
        parts = _split(url)
        if not parts.hostname:
            raise StoreUrlError("names no server")
        if {parts.path.strip("/"), *parse_qs(parts.query).get("db", ())} - {"", "0"}:
            raise StoreUrlError("names a database; a cluster has only one, 0")
    return StoreUrl(clustered=True, urls=urls)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise StoreUrlError("is not a URL") from None
    if port == 0 or parts.fragment or "@" in parts.query:  # '#' or '?' as they are, within a password
        raise StoreUrlError("is not a URL")
    return parts


def _is_database(path: str) -> bool:
    number = path.strip("/")
    return not number or (number.isascii() and number.isdecimal())


def mask_store_url(text: str) -> str:
    """``text`` without its password and without its options, which may hold one as well; no URL is hidden whole."""
    try:
        parse_store_url(text)
    except StoreUrlError:
        return "***"
    where, question, _ = text.partition("?")
    scheme, _, rest = where.partition("://")
    account, at, place = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{place}" + ("?***" if question else "")
