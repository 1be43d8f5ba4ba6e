import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import MECHANISMS, Mechanism, MechanismError, mechanism
from dither_protocol.mechanisms import MAX_EPSILON, MIN_EPSILON
from dither_protocol.mechanisms.forms import encode_base64url
from support.mechanism_samples import packed_reports
from support.protocol_samples import MARKER, refused


def _any(name: str, epsilon: float = 1.0, d: int = 12) -> Mechanism:
    return mechanism(name, epsilon, 2 if name == "rr" else d)


@st.composite
def _mechanisms(draw: st.DrawFn) -> Mechanism:
    epsilon = draw(st.floats(MIN_EPSILON, MAX_EPSILON))
    return _any(draw(st.sampled_from(list(MECHANISMS))), epsilon, draw(st.integers(2, 300)))


@given(_mechanisms(), st.data())
def test_pack_and_unpack_are_inverse(made: Mechanism, data: st.DataObject) -> None:
    """Every packed report gives the wire data that it came from, and has the size that was announced."""
    packed = data.draw(packed_reports(made))
    assert len(packed) == made.packed_size
    assert made.pack(made.unpack(packed)) == packed


@pytest.mark.parametrize(
    ("name", "d", "sizes", "form"),
    [
        ("rr", 2, (1, 4, 2), "index"),
        ("grr", 2, (1, 4, 2), "index"),
        ("grr", 15, (4, 4, 15), "index"),
        ("grr", 16, (4, 4, 16), "index"),
        ("grr", 17, (5, 4, 17), "index"),
        ("sue", 8, (8, 1, 8), "bits"),
        ("sue", 9, (9, 2, 9), "bits"),
        ("oue", 1_000, (1_000, 125, 1_000), "bits"),
        ("subset", 9, (9, 2, 9), "bits"),
        ("subset", 1_000, (1_000, 125, 1_000), "bits"),
        ("olh", 100, (34, 8, 100), "hash"),  # four buckets at epsilon = 1
        ("blh", 100, (33, 8, 100), "hash"),
        ("hadamard", 2, (2, 4, 4), "index"),
        ("hadamard", 3, (2, 4, 4), "index"),
        ("hadamard", 4, (3, 4, 8), "index"),
        ("hadamard", 65_536, (17, 4, 131_072), "index"),
        ("projective", 7, (3, 4, 7), "index"),
        ("projective", 128, (9, 4, 364), "index"),
    ],
)
def test_sizes(name: str, d: int, sizes: tuple[int, int, int], form: str) -> None:
    """A report has this much information and this packed size, and a cell keeps so many counters."""
    made = mechanism(name, 1.0, d)
    assert (made.report_bits, made.packed_size, made.counters) == sizes
    assert made.form == form


@pytest.mark.parametrize(
    ("epsilon", "g"),
    [
        (0.001, 2),
        (0.1, 2),
        (0.5, 3),
        (1.0, 4),
        (2.0, 8),
        (4.0, 56),
        (5.0, 149),
        (8.0, 2_982),
        (20.0, 485_165_196),
    ],
)
def test_number_of_buckets(epsilon: float, g: int) -> None:
    """`olh` has e^epsilon + 1 buckets, rounded; `blh` always two."""
    assert mechanism("olh", epsilon, 12).g == g  # type: ignore[attr-defined]
    assert mechanism("blh", epsilon, 12).g == 2  # type: ignore[attr-defined]


def test_largest_seed_and_last_index_are_packed() -> None:
    """The borders of every form are inside."""
    assert _any("olh").pack([2**32 - 1, 3]) == b"\xff\xff\xff\xff\x03\0\0\0"
    assert _any("olh").pack([0, 0]) == bytes(8)
    assert _any("hadamard").pack(15) == b"\x0f\0\0\0"
    assert _any("projective").pack(12) == b"\x0c\0\0\0"
    assert _any("subset").pack("BwA") == b"\x07\0"


NOT_INDICES = (True, False, 1.0, "1", None, [1], (1,), b"1", -1, 2**32, 2**70, float("nan"))
NOT_BITS = (3, True, None, b"BwA", ["BwA"], "", "Bw", "BwAA", "BwA=", "Bw+", "BwB", "Bw\n", "B\ud800A")
NOT_PAIRS = (
    True, 7, None, "AA", [], [7], [7, 1, 1], (7, 1), {7: 1}, [True, 1], [7, False], [7.0, 1], [7, 1.0], ["7", 1],
    [7, None], [[7], 1], [-1, 1], [2**32, 1], [2**70, 1], [7, -1], [7, 2**32], [7, 4],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((name, data) for name in ("rr", "grr", "hadamard", "projective") for data in NOT_INDICES),
        *((name, data) for name in ("sue", "oue", "subset") for data in NOT_BITS),
        *((name, data) for name in ("olh", "blh") for data in NOT_PAIRS),
        ("rr", 2),
        ("grr", 12),
        ("hadamard", 16),
        ("projective", 13),
        ("blh", [7, 2]),
        ("oue", "ABA"),  # bit 12 of 12: padding
        ("subset", "AxA"),  # as many ones as a subset has, one of them padding
    ],
)
def test_foreign_data_is_refused(name: str, data: object) -> None:
    """A mechanism packs nothing but what it could have produced: no True for 1, no tuple for a list."""
    with pytest.raises(MechanismError):
        _any(name).pack(data)


@pytest.mark.parametrize("bits", [0b0, 0b1, 0b11, 0b1111, 0b1111_1111_1111])
def test_a_subset_of_another_size_is_refused(bits: int) -> None:
    """A subset report has exactly w ones."""
    with pytest.raises(MechanismError, match=r"^exactly 3 bits must be set$"):
        _any("subset").pack(encode_base64url(bits.to_bytes(2, "little")))


def test_errors_about_reports_keep_quiet() -> None:
    """No message repeats a seed, a value or a text."""
    for data in ([471_147, 4], [2**32 + 471_147, 1], [7, 471_147], [471_147]):
        with refused(MechanismError, "", secret=471_147):
            _any("olh").pack(data)
    for name in ("subset", "olh", "hadamard", "projective"):
        with refused(MechanismError, ""):
            _any(name).pack(MARKER)
