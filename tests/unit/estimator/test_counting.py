import re
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_client import randomize
from dither_estimator import EstimationError, count, count_packed, counting, support
from dither_protocol import MECHANISMS, Mechanism, MechanismError, mechanism
from dither_protocol.mechanisms import Data, GeneralizedRandomizedResponse
from support.laws import supports
from support.mechanism_samples import packed_reports

NAMES = tuple(MECHANISMS)


def _any(name: str, d: int = 12) -> Mechanism:
    return mechanism(name, 1.0, 2 if name == "rr" else d)


@st.composite
def _reports(draw: st.DrawFn) -> tuple[Mechanism, list[Data]]:
    """A mechanism, and wire data that it could have produced."""
    made = _any(draw(st.sampled_from(NAMES)), draw(st.integers(2, 70)))
    return made, [made.unpack(packed) for packed in draw(st.lists(packed_reports(made), max_size=40))]


def _counters_slowly(made: Mechanism, reports: list[Data]) -> list[int]:
    """Report by report and counter by counter, with no numpy: indices as they are, else who supports the report."""
    counters = [0] * made.counters
    for data in reports:
        assert made.pack(data)
        for place in range(made.counters):
            counters[place] += data == place if isinstance(data, int) else supports(made, data, place)
    return counters


@settings(deadline=None)  # a busy machine is not a fault
@given(_reports())
def test_bulk_counting_is_counting_one_by_one(sample: tuple[Mechanism, list[Data]]) -> None:
    """`count` gives what a report-by-report reading of the packed form gives, as int64."""
    made, reports = sample
    counters, n = count(made, reports)
    assert counters.tolist() == _counters_slowly(made, reports)
    assert counters.dtype == np.int64
    assert (counters.shape, n) == ((made.counters,), len(reports))


@settings(deadline=None)  # a busy machine is not a fault
@given(_reports())
def test_packed_and_wire_counts_agree(sample: tuple[Mechanism, list[Data]]) -> None:
    """`count_packed` of the packed reports is `count` of the reports, for bytes and memoryview alike."""
    made, reports = sample
    packed = b"".join(made.pack(data) for data in reports)
    counters, n = count(made, reports)
    for form in (packed, memoryview(packed), memoryview(bytearray(b"x" + packed))[1:]):
        again, n_again = count_packed(made, form)
        assert again.tolist() == counters.tolist()
        assert again.dtype == np.int64
        assert n_again == n


@settings(deadline=None)  # a busy machine is not a fault
@given(_reports(), st.integers(1, 7))
def test_chunks_do_not_change_the_count(sample: tuple[Mechanism, list[Data]], size: int) -> None:
    """An iterator is counted in chunks, and the chunks add up."""
    made, reports = sample
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_CHUNK_REPORTS", size)
        counters, n = count(made, iter(reports))
    assert (counters.tolist(), n) == (_counters_slowly(made, reports), len(reports))


@pytest.mark.parametrize("name", NAMES)
def test_the_bulk_path_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Good reports are never packed one by one, however they are spelled."""
    made = _any(name, 130)
    data = randomize(made, 1)
    monkeypatch.setattr(counting, "_pack_each", None)
    counters, n = count(made, [data] * 1000)
    assert (counters.tolist(), n) == ([1000 * one for one in _counters_slowly(made, [data])], 1000)


@pytest.mark.parametrize("rows", [1, 254, 255, 256, 510, 511, 1000])
def test_sums_of_bits_do_not_wrap(rows: int) -> None:
    """Columns full of ones are counted rightly across the 255 rows that a byte can hold."""
    made = _any("oue", 11)
    counters, n = count_packed(made, b"\xff\x07" * rows)
    assert (counters.tolist(), n) == ([rows] * 11, rows)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_counted_from_nothing(name: str) -> None:
    """No reports give zeros of the right shape."""
    made = _any(name)
    for counters, n in (count(made, []), count(made, iter(())), count_packed(made, b"")):
        assert (counters.tolist(), n) == ([0] * made.counters, 0)


BAD_INDICES = (True, False, -1, 2**31, 2**32, 2**70, -(2**70), 1.0, float("nan"), "3", None, [3], b"3")
BAD_BITS = (
    3, True, None, b"AAA", ["AAA"], "", "AA", "AAAA", "AAA=", "AA==", "AA+", "AA/", "AA\n", "AA ", "AAé", "AA\ud800",
    "AAB",  # two zero bits are left over, and here they are not zero
    "ABA",  # bit 12 of 12: padding
)  # fmt: skip
BAD_SUBSETS = (
    "AAA", "AQA", "AwA", "DwA", "_w8",  # 0, 1, 2, 4 and all 12 ones in place of 3
    "AxA",  # three, one of them padding
    *(bad for bad in BAD_BITS),
)  # fmt: skip
BAD_PAIRS = (
    7, True, None, "AA", (7, 1), {7: 1}, [], [7], [7, 1, 1], [7, 1, 7, 1], [True, 1], [7, False], [7.0, 1], [7, 1.0],
    ["7", 1], [7, None], [[7], 1], [-1, 1], [2**32, 1], [2**70, 1], [7, -1], [7, 4], [7, 2**32], [7, 2**70],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("grr", 3, bad) for bad in (12, *BAD_INDICES)]
    + [("hadamard", 15, bad) for bad in (16, *BAD_INDICES)]
    + [("projective", 12, bad) for bad in (13, *BAD_INDICES)]
    + [("oue", "AAA", bad) for bad in BAD_BITS]
    + [("subset", "BwA", bad) for bad in BAD_SUBSETS]
    + [("olh", [7, 3], bad) for bad in BAD_PAIRS]
    + [("blh", [7, 1], bad) for bad in (*BAD_PAIRS, [7, 2])],
)
@pytest.mark.parametrize("position", [0, 1, 6])
def test_a_bad_report_is_named_by_its_position(name: str, good: object, bad: object, position: int) -> None:
    """A report that the mechanism cannot produce stops the count, with the message that `pack` has for it."""
    made = _any(name)
    reports = [good] * 7
    reports[position] = bad
    with pytest.raises(MechanismError) as alone:
        made.pack(bad)
    with pytest.raises(MechanismError, match=re.escape(f"reports[{position}]: {alone.value}")):
        count(made, reports)


def test_positions_go_on_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position counts from the first report of all, not of the chunk."""
    monkeypatch.setattr(counting, "_CHUNK_REPORTS", 3)
    with pytest.raises(MechanismError, match=r"^reports\[7\]: data must be in \[0, 12\)$"):
        count(_any("grr"), iter([0] * 7 + [12, 13]))


def test_all_64_characters_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bulk path knows the whole alphabet of base64url, and nothing else is part of it."""
    monkeypatch.setattr(counting, "_pack_each", None)
    made = _any("oue", 48)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    reports: list[Data] = [alphabet[at : at + 8] for at in range(0, 64, 8)]
    assert count(made, reports)[0].tolist() == _counters_slowly(made, reports)
    for code in set(range(256)) - set(alphabet.encode("ascii")):
        with pytest.raises(TypeError, match="not callable"):  # it turns to the slow way, which is not there
            count(made, ["AAAAAAA" + chr(code)])


@pytest.mark.parametrize(
    ("d", "reports"),
    [
        (12, ["AAAA", "AA"]),  # together as long as two reports
        (12, ["AA", "AAAA"]),
        (48, ["!!!!AAAA", "AAAA!!!!"]),  # together one report, were foreign characters skipped
        (48, ["AAA=AAAA", "AAAA===="]),
    ],
)
def test_bad_reports_do_not_make_up_for_each_other(d: int, reports: list[str]) -> None:
    """Texts are joined to be decoded, yet each must be right by itself."""
    with pytest.raises(MechanismError, match=r"^reports\[0\]: "):
        count(_any("oue", d), reports)


def test_a_subclass_of_str_is_counted_the_slow_way() -> None:
    """What `pack` accepts is counted, also where the bulk path does not know it."""

    class Text(str):
        __slots__ = ()

    assert count(_any("oue"), [Text("AQA"), "AQA"])[0].tolist() == [2] + [0] * 11


@pytest.mark.parametrize(
    ("name", "packed"),
    [("grr", bytes(7)), ("oue", bytes(3)), ("subset", bytes(1)), ("olh", bytes(12)), ("hadamard", bytes(2))],
)
def test_a_part_of_a_packed_report_is_refused(name: str, packed: bytes) -> None:
    """Packed reports come whole."""
    with pytest.raises(MechanismError, match=r"must be a multiple of [428] bytes"):
        count_packed(_any(name), packed)


@pytest.mark.parametrize("index", [12, 2**31, 2**32 - 1])
def test_a_packed_index_outside_the_domain_is_refused(index: int) -> None:
    """An index that the mechanism does not have is an error in the packed form too."""
    with pytest.raises(MechanismError, match=r"an index is not in \[0, 12\)"):
        count_packed(_any("grr"), bytes(8) + index.to_bytes(4, "little"))


@pytest.mark.parametrize(("name", "size"), [("hadamard", 16), ("projective", 13)])
def test_a_packed_number_outside_the_space_is_refused(name: str, size: int) -> None:
    """The first number that is no column, or no point, is an error in the packed form too; the last one is not."""
    last = (size - 1).to_bytes(4, "little")
    assert count_packed(_any(name), last)[0].tolist() == [0] * (size - 1) + [1]
    with pytest.raises(MechanismError, match=rf"an index is not in \[0, {size}\)"):
        count_packed(_any(name), last + size.to_bytes(4, "little"))


@pytest.mark.parametrize("value", [4, 2**31, 2**32 - 1])
def test_a_packed_bucket_outside_the_range_is_refused(value: int) -> None:
    """A bucket that the mechanism does not have is an error in the packed form too."""
    with pytest.raises(MechanismError, match=r"a value is not in \[0, 4\)"):
        count_packed(_any("olh"), bytes(8) + bytes(4) + value.to_bytes(4, "little"))


@pytest.mark.parametrize("bits", [b"\0\0", b"\x03\0", b"\x0f\0", b"\xff\x0f"])
def test_a_packed_subset_of_another_size_is_refused(bits: bytes) -> None:
    """Each subset has exactly w ones: one too many does not make up for one too few."""
    with pytest.raises(MechanismError, match="exactly 3 bits must be set"):
        count_packed(_any("subset"), b"\x07\0" * 300 + bits)
    with pytest.raises(MechanismError, match="exactly 3 bits must be set"):
        count_packed(_any("subset"), b"\x03\0\x0f\0")


def test_a_packed_subset_with_padding_is_refused() -> None:
    """Bits beyond the domain are zero, also where the number of ones is right."""
    with pytest.raises(MechanismError, match="the padding bits must be zero"):
        count_packed(_any("subset"), b"\x03\x10")


@pytest.mark.parametrize("high", [0x10, 0x80, 0xFF])
def test_packed_padding_bits_are_refused(high: int) -> None:
    """Bits beyond the domain are zero."""
    with pytest.raises(MechanismError, match="the padding bits must be zero"):
        count_packed(_any("oue"), bytes(600) + bytes([0, high]))


class _Unknown(GeneralizedRandomizedResponse):
    name: ClassVar[str] = "unheard-of"


def test_a_mechanism_without_a_counter_is_refused() -> None:
    """Every entrance says so when nobody has taught it the mechanism."""
    made = _Unknown(1.0, 3)
    for use in (lambda: count(made, []), lambda: count_packed(made, b""), lambda: support(made, [1, 2, 3])):
        with pytest.raises(MechanismError, match="cannot be counted"):
            use()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("hadamard", "projective")])
def test_support_of_most_mechanisms_is_the_counters(name: str) -> None:
    """Every supporting report is one of the counter, in a copy of its own, whatever type of integer comes in."""
    made = _any(name)
    numbers = [2**63 - 1, *range(1, made.d)]
    for counters in (numbers, tuple(numbers), np.array(numbers), np.array(numbers, dtype=np.uint64)):
        found = support(made, counters)
        assert found.tolist() == numbers
        assert found.dtype == np.int64
        assert found is not counters


@settings(deadline=None)  # a busy machine is not a fault
@given(_reports())
def test_support_is_the_number_of_supporting_reports(sample: tuple[Mechanism, list[Data]]) -> None:
    """From reports by way of counters, each value has as many supporters as the definition gives it."""
    made, reports = sample
    found = support(made, count(made, reports)[0])
    assert found.tolist() == [sum(supports(made, data, v) for data in reports) for v in range(made.d)]
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("counters", "problem"),
    [
        ([1, 2], r"must have shape \(3,\), not \(2,\)"),
        ([1, 2, 3, 4], r"must have shape \(3,\), not \(4,\)"),
        ([], r"must have shape \(3,\), not \(0,\)"),
        (3, r"must have shape \(3,\), not \(\)"),
        ([[1, 2, 3]], r"must have shape \(3,\), not \(1, 3\)"),
        ([[1], [2, 3]], "one row of whole numbers"),
        ([1.0, 2.0, 3.0], "must be whole numbers"),
        ([True, False, True], "must be whole numbers"),
        (["1", "2", "3"], "must be whole numbers"),
        ([1, 2, None], "must be whole numbers"),
        ([1, 2, 2**64], "must be whole numbers"),
        ([1, 2, 2**63], "must be whole numbers below"),
        (np.array([1, 2, 2**63], dtype=np.uint64), r"must be in \[0, 2\^63\)"),
        ([1, -1, 3], r"must be in \[0, 2\^63\)"),
    ],
)
def test_what_cannot_be_counters_is_refused(counters: object, problem: str) -> None:
    """Counters of another shape, sign, size or type are an error, never a wrong estimate."""
    with pytest.raises(EstimationError, match=problem):
        support(_any("grr", 3), counters)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["hadamard", "projective"])
def test_histograms_that_add_up_beyond_int64_are_refused(name: str) -> None:
    """Sums of reports would wrap round to wrong estimates: below 2^63 they are exact, from there on an error."""
    made = _any(name, 3)
    rest = [1] * (made.counters - 2)
    largest = [2**62, 2**62 - 1 - len(rest), *rest]
    expected = [sum(n for y, n in enumerate(largest) if supports(made, y, v)) for v in range(made.d)]
    assert support(made, largest).tolist() == expected
    for counters in ([2**62, 2**62, *rest], [2**63 - 1] * made.counters, [largest[0], largest[1] + 1, *rest]):
        with pytest.raises(EstimationError, match=r"must add up to less than 2\^63"):
            support(made, counters)
