"""What an app demands of a registry that a server sends, beyond being one.

With pinned keys: a signature by one of them, and a revision that is not lower than the highest this device has seen. So
neither a broken server nor anybody on the way can change what is asked, nor bring an old registry back.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dither_client.state import read_note, write_note
from dither_protocol.errors import DitherError, RegistryError

if TYPE_CHECKING:
    from dither_protocol.registry.envelope import SignedRegistry

_HIGHEST: Final = "registry revision"


class Refusal(StrEnum):
    """Why a registry was not taken. Stable: apps find these words in `Client.stats`."""

    BROKEN = "broken"
    UNSIGNED = "unsigned"
    UNTRUSTED = "untrusted"
    OTHER_PROJECT = "other_project"
    ROLLED_BACK = "rolled_back"
    REVISION_REUSED = "revision_reused"


class RegistryRefusedError(DitherError):
    """A fetched or cached registry is not taken; what is in use stays. Never reaches the app."""

    def __init__(self, reason: Refusal, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


def read_keys(keys: Iterable[str]) -> dict[str, bytes]:
    """Public keys by their ids.

    Raises:
        ValueError: one is no public key of ``dither registry keygen``, or a text stands for the list.
    """
    if isinstance(keys, str):
        raise ValueError("registry_keys must be a list of keys")
    given = list(keys)
    if not given:
        return {}
    from dither_protocol.registry.envelope import key_id, parse_public_key  # noqa: PLC0415  only where keys are pinned

    found = [parse_public_key(key) for key in given]
    return {key_id(public): public for public in found}


def open_signed(text: object, keys: Mapping[str, bytes]) -> "SignedRegistry":
    """An envelope that one of the keys has signed.

    Args:
        text: what came instead of an answer, or from the cache; empty where the server has no signed registry.
        keys: pinned public keys by id.

    Raises:
        RegistryRefusedError: it is none.
    """
    from dither_client.signatures import verify  # noqa: PLC0415  only where keys are pinned
    from dither_protocol.registry.envelope import parse_envelope  # noqa: PLC0415

    if not isinstance(text, str) or not text:
        raise RegistryRefusedError(Refusal.UNSIGNED, "the server has no signed one")
    try:
        signed = parse_envelope(text.encode("utf-8", "replace"))
    except RegistryError as error:
        raise RegistryRefusedError(Refusal.BROKEN, str(error)) from None
    try:
        signed.trusted_by(keys, verify)
    except RegistryError as error:
        raise RegistryRefusedError(Refusal.UNTRUSTED, str(error)) from None
    return signed


def raise_highest(connection: sqlite3.Connection, signed: "SignedRegistry") -> None:
    """Note the revision as the highest that this device has seen.

    Raises:
        RegistryRefusedError: a higher one was seen, or the same one with other content; nothing is noted.
    """
    highest, digest = _highest(connection)
    if signed.revision < highest:
        problem = f"revision {signed.revision}, and {highest} was seen already"
        raise RegistryRefusedError(Refusal.ROLLED_BACK, problem)
    if signed.revision == highest and signed.digest != digest:
        raise RegistryRefusedError(Refusal.REVISION_REUSED, f"another revision {highest} was seen already")
    if signed.revision > highest:
        write_note(connection, _HIGHEST, json.dumps([signed.revision, signed.digest]))


def _highest(connection: sqlite3.Connection) -> tuple[int, str]:
    """The highest revision seen with its digest; 0 where there is none, or a note that nobody we know wrote."""
    try:
        revision, digest = json.loads(read_note(connection, _HIGHEST) or '[0, ""]')
    except (ValueError, TypeError):
        return 0, ""
    return (revision, str(digest)) if type(revision) is int else (0, "")
