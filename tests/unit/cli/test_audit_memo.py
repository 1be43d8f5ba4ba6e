"""What many memoised reports of one device stand for."""

from dither_cli.audit_memo import majority
from dither_protocol import mechanism


def test_the_most_frequent_index_stands_for_all() -> None:
    """Of two that are as frequent the smaller one, which is a rule like any other."""
    grr = mechanism("grr", 2.0, 4)
    assert majority(grr, [3, 1, 3, 0, 3]) == 3
    assert majority(grr, [2, 1, 1, 2]) == 1


def test_each_bit_is_as_in_most_reports() -> None:
    """Bit by bit, not report by report."""
    oue = mechanism("oue", 2.0, 10)
    reports = [oue.unpack(bits.to_bytes(2, "little")) for bits in (0b1100000001, 0b0100000011, 0b1000000010)]
    assert oue.pack(majority(oue, reports)) == (0b1100000011).to_bytes(2, "little")
