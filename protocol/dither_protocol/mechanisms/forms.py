"""The two simplest wire forms: an index, and a string of d bits. Strict both ways."""

import base64
import binascii
import struct
from typing import Final

from dither_protocol.errors import MechanismError

INDEX: Final = struct.Struct("<I")


def pack_index(data: object, size: int) -> bytes:
    """An index in [0, size) as four little-endian bytes."""
    if type(data) is not int:  # True is an int to isinstance, and not an index to us
        raise MechanismError("data must be a whole number")
    if not 0 <= data < size:
        raise MechanismError(f"data must be in [0, {size})")
    return INDEX.pack(data)


def unpack_index(packed: bytes) -> int:
    """The inverse of `pack_index`."""
    return int(INDEX.unpack(packed)[0])


def encode_base64url(raw: bytes) -> str:
    """Base64url without padding characters (RFC 4648 section 5)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def decode_base64url(text: str, size: int) -> bytes:
    """Exactly ``size`` bytes from canonical, unpadded base64url.

    Canonical means that encoding the result gives the text again: one value, one spelling.

    Raises:
        MechanismError: wrong length, foreign characters, or a second spelling of the same bytes.
    """
    if len(text) != (size * 4 + 2) // 3:
        raise MechanismError(f"must be base64url of exactly {size} bytes, unpadded")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise MechanismError("is not base64url") from None
    if encode_base64url(raw) != text:
        raise MechanismError("is not canonical base64url")
    return raw


def pack_bits(data: object, d: int) -> bytes:
    """The ceil(d/8) bytes of a bit report, padding bits checked to be zero.

    Item v is bit v % 8 of byte v // 8 (little-endian).
    """
    if not isinstance(data, str):
        raise MechanismError("data must be a base64url string")
    raw = decode_base64url(data, (d + 7) // 8)
    if d % 8 and raw[-1] >> (d % 8):
        raise MechanismError("the padding bits must be zero")
    return raw


PAIR: Final = struct.Struct("<II")
SEEDS: Final = 1 << 32


def pack_pair(data: object, g: int) -> bytes:
    """A pair [seed, value], seed of 32 bits and value in [0, g), as two little-endian 32-bit words."""
    if type(data) is not list or len(data) != 2 or type(data[0]) is not int or type(data[1]) is not int:
        raise MechanismError("data must be a list of two whole numbers, [seed, value]")
    seed, value = data
    if not 0 <= seed < SEEDS:
        raise MechanismError("the seed must be in [0, 2^32)")
    if not 0 <= value < g:
        raise MechanismError(f"the value must be in [0, {g})")
    return PAIR.pack(seed, value)


def unpack_pair(packed: bytes) -> list[int]:
    """The inverse of `pack_pair`."""
    return list(PAIR.unpack(packed))
