import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.labels import MAX_LABEL_LENGTH, NAME, PROJECT_NAME, label_problem, normalize

COMPOSED = "caf\u00e9"
DECOMPOSED = "cafe\u0301"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def test_two_spellings_become_one() -> None:
    """A letter with its accent is one label, typed as one character or as two."""
    assert COMPOSED != DECOMPOSED
    assert normalize(COMPOSED) == normalize(DECOMPOSED) == COMPOSED


@given(st.text())
def test_normalisation_is_stable(text: str) -> None:
    """Normal form C of a normal form C is itself."""
    assert normalize(normalize(text)) == normalize(text)


@pytest.mark.parametrize(
    "label",
    [
        "x",
        "two words",
        "a" * MAX_LABEL_LENGTH,
        "Firefox \N{HEAVY BLACK HEART}\ufe0f",
        "\U0001f469\u200d\U0001f4bb",  # an emoji of two, joined by U+200D
        "日本語",
        "עברית",
        "50% : a=b, c/d",
    ],
)
def test_ordinary_labels_are_taken(label: str) -> None:
    """Labels of any script, with spaces and punctuation, are fine."""
    assert label_problem(label) is None


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("", "1 to 300"),
        ("a" * (MAX_LABEL_LENGTH + 1), "1 to 300"),
        (" zz", "spaces at its ends"),
        ("a\u00a0", "spaces at its ends"),
        ("a\n", "spaces at its ends"),
        ("a\x00b", "control"),
        ("a\tb", "control"),
        ("a\x7fb", "control"),
        ("a\x9bb", "control"),
        ("a\u2028b", "control"),
        ("a\u2029b", "control"),
        *((f"a{chr(code)}b", "surrogates") for code in (0xD800, 0xDBFF, 0xDC00, 0xDFFF)),
        *((f"a{character}b", "bidirectional") for character in BIDI),
    ],
)
def test_hostile_labels_are_refused(label: str, problem: str) -> None:
    """Empty, overlong, invisible or reordering text is no label, and the reason does not repeat it."""
    found = label_problem(label)
    assert found is not None
    assert problem in found
    assert not label or label not in found, "the reason repeats the label"


def test_bidi_controls_are_those_of_unicode() -> None:
    """The list of bidirectional controls holds every format character with a bidirectional class of its own."""
    classes = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    marks = {"\u061c", "\u200e", "\u200f"}
    embedding = {c for c in map(chr, range(0x10000)) if unicodedata.bidirectional(c) in classes}
    assert embedding | marks == set(BIDI)


@pytest.mark.parametrize("name", ["a", "dark_mode", "a" * 64, "a0_"])
def test_names_taken(name: str) -> None:
    """Names are lower-case words with digits and underscores."""
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "A", "0a", "_a", "a-b", "a:b", "a" * 65, "a\n", "é", "a b"])
def test_names_refused(name: str) -> None:
    """Anything that could break a key of the store is no name."""
    assert not NAME.fullmatch(name)


def test_project_may_have_hyphens() -> None:
    """A project's name may have hyphens, a metric's may not."""
    assert PROJECT_NAME.fullmatch("example-editor")
    assert not NAME.fullmatch("example-editor")
