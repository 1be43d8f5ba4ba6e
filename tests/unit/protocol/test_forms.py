import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms.forms import (
    decode_base64url,
    encode_base64url,
    pack_bits,
    pack_index,
    pack_pair,
    unpack_index,
    unpack_pair,
)
from support.protocol_samples import MARKER, refused

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.integers(1, 2**32), st.data())
def test_index_round_trip(size: int, data: st.DataObject) -> None:
    """Every index of a domain survives packing, as four little-endian bytes."""
    index = data.draw(st.integers(0, size - 1))
    packed = pack_index(index, size)
    assert packed == index.to_bytes(4, "little")
    assert unpack_index(packed) == index


@pytest.mark.parametrize("data", [True, False, 1.0, "1", None, [1], {"1": 1}, float("nan")])
def test_index_of_wrong_type(data: object) -> None:
    """An index is an int and nothing that equals one: True is not 1."""
    with pytest.raises(MechanismError, match="data must be a whole number"):
        pack_index(data, 3)


@pytest.mark.parametrize("data", [-1, 3, 2**32, -(10**30)])
def test_index_outside_the_domain(data: int) -> None:
    """An index outside [0, size) is refused."""
    with pytest.raises(MechanismError, match="data must be in"):
        pack_index(data, 3)


def test_index_errors_keep_quiet() -> None:
    """An error about an index repeats neither a text nor a number."""
    with refused(MechanismError, "data"):
        pack_index(MARKER, 3)
    with refused(MechanismError, "data", secret=471147):
        pack_index(471_147, 3)


@given(st.binary(max_size=70))
def test_base64url_round_trip(raw: bytes) -> None:
    """Bytes of any length survive, in the alphabet of RFC 4648 section 5 and without padding."""
    text = encode_base64url(raw)
    assert set(text) <= set(ALPHABET)
    assert decode_base64url(text, len(raw)) == raw


@given(st.text(alphabet=ALPHABET + "+/= \n\u00e9", min_size=0, max_size=12), st.integers(0, 9))
def test_bytes_have_one_spelling(text: str, size: int) -> None:
    """Whatever text is accepted is the one that encoding the result gives."""
    try:
        raw = decode_base64url(text, size)
    except MechanismError:
        return
    assert len(raw) == size
    assert encode_base64url(raw) == text


@pytest.mark.parametrize(
    ("text", "size", "problem"),
    [
        ("", 1, "exactly 1 bytes"),
        ("AAA", 1, "exactly 1 bytes"),
        ("AA==", 1, "exactly 1 bytes"),
        ("A", 1, "exactly 1 bytes"),
        ("A*", 1, "not base64url"),
        ("A\u00e9", 1, "not base64url"),
        ("A\ud800", 1, "not base64url"),
        ("A=", 1, "not"),
        ("A\n", 1, "not base64url"),
        ("AB", 1, "canonical"),  # the last four bits are not zero
        ("AAAB", 2, "exactly 2 bytes"),
        ("AAB", 2, "canonical"),
        ("++++", 3, "canonical"),  # the other alphabet
        ("//8", 2, "canonical"),
    ],
)
def test_bad_base64url(text: str, size: int, problem: str) -> None:
    """Wrong length, padding, foreign characters and second spellings are refused."""
    with pytest.raises(MechanismError, match=problem):
        decode_base64url(text, size)


def test_bit_order_is_little_endian() -> None:
    """Item v is bit v % 8 of byte v // 8."""
    for item in range(20):
        packed = pack_bits(encode_base64url((1 << item).to_bytes(3, "little")), 20)
        assert [v for v in range(20) if packed[v // 8] >> v % 8 & 1] == [item]


@pytest.mark.parametrize("d", [2, 7, 9, 15, 17, 1_001])
def test_padding_bits_must_be_zero(d: int) -> None:
    """A bit beyond the last item is refused, each of them."""
    size = (d + 7) // 8
    assert pack_bits(encode_base64url(((1 << d) - 1).to_bytes(size, "little")), d)
    for bit in range(d, size * 8):
        with pytest.raises(MechanismError, match="padding bits must be zero"):
            pack_bits(encode_base64url((1 << bit).to_bytes(size, "little")), d)


def test_full_last_byte_has_no_padding() -> None:
    """With d a multiple of eight every bit is an item."""
    assert pack_bits(encode_base64url(b"\xff\xff"), 16) == b"\xff\xff"


@pytest.mark.parametrize("size", [0, 1, 3, 100])
def test_bit_string_of_wrong_length(size: int) -> None:
    """A bit report has exactly ceil(d/8) bytes."""
    with pytest.raises(MechanismError, match="exactly 2 bytes"):
        pack_bits(encode_base64url(bytes(size)), 15)


@pytest.mark.parametrize("data", [0, True, None, b"AAA", ["AAA"], 1.5])
def test_bit_string_of_wrong_type(data: object) -> None:
    """A bit report is a string."""
    with pytest.raises(MechanismError, match="data must be a base64url string"):
        pack_bits(data, 15)


def test_bit_string_errors_keep_quiet() -> None:
    """Errors about a bit report never repeat it, whatever is wrong with it."""
    size = (len(MARKER) * 3) // 4
    for data, d in (
        ([MARKER], 15),
        (MARKER, 15),
        (MARKER[:-1] + "!", 8 * size),
        (MARKER[:-1] + "+", 8 * size),
    ):
        with refused(MechanismError, "", secret=MARKER[:-1]):
            pack_bits(data, d)


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**32), st.data())
def test_pair_round_trip(seed: int, g: int, data: st.DataObject) -> None:
    """Every seed and bucket survive packing, as two little-endian words of four bytes."""
    value = data.draw(st.integers(0, g - 1))
    packed = pack_pair([seed, value], g)
    assert packed == seed.to_bytes(4, "little") + value.to_bytes(4, "little")
    assert unpack_pair(packed) == [seed, value]


@pytest.mark.parametrize(
    "data",
    [
        (7, 1),
        [7],
        [7, 1, 1],
        [],
        7,
        "AA",
        None,
        {7: 1},
        [True, 1],
        [7, True],
        [7.0, 1],
        [7, "1"],
        [7, None],
        [[7], 1],
    ],
)
def test_pair_of_wrong_type(data: object) -> None:
    """A pair is a list of two ints and nothing that equals one."""
    with pytest.raises(MechanismError, match=r"data must be a list of two whole numbers, \[seed, value\]"):
        pack_pair(data, 3)


def test_pair_is_no_subclass_of_list_or_int() -> None:
    """What JSON cannot give is refused, even where it behaves alike."""

    class Listed(list[int]):
        pass

    class Number(int):
        pass

    for data in (Listed([7, 1]), [Number(7), 1], [7, Number(1)]):
        with pytest.raises(MechanismError, match="list of two whole numbers"):
            pack_pair(data, 3)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70, -(2**70)])
def test_seed_outside_32_bits(seed: int) -> None:
    """A seed has 32 bits."""
    with pytest.raises(MechanismError, match=r"^the seed must be in \[0, 2\^32\)$"):
        pack_pair([seed, 1], 3)


@pytest.mark.parametrize("value", [-1, 3, 2**32, 2**70])
def test_bucket_outside_its_range(value: int) -> None:
    """A value is one of the g buckets."""
    with pytest.raises(MechanismError, match=r"^the value must be in \[0, 3\)$"):
        pack_pair([7, value], 3)
