"""Faults: shares of what goes wrong on purpose."""

import pytest

from dither_fleet.faults import ALL, Faults, FaultsError


def test_faults_are_read_as_they_are_written() -> None:
    """Names with shares, whole sets, and both; and they can be written and read again."""
    assert Faults.parse("none") == Faults.parse("") == Faults()
    assert Faults.parse("all") == Faults(**ALL)
    assert Faults.parse("cut=0.5, bad-report=0.25") == Faults(cut=0.5, bad_report=0.25)
    assert Faults.parse("all,old=0") == Faults(**ALL | {"old": 0.0})
    assert Faults.parse(str(Faults(**ALL))) == Faults(**ALL)
    assert str(Faults()) == "none"


@pytest.mark.parametrize(
    "text", ["cut", "cut=x", "cut=-1", "cut=1.5", "lost=0.1", "early=0.6,late=0.6", "cut=nan"]
)
def test_what_is_no_list_of_faults_is_refused(text: str) -> None:
    """Unknown names, what is no share, and kinds of devices that are more than all devices."""
    with pytest.raises(FaultsError):
        Faults.parse(text)
