"""Labels: the texts that people gave to categories and dimension values.

Two spellings that look alike must be one label: everything is compared in Unicode normal form C.
"""

import re
import unicodedata
from typing import Final

MAX_LABEL_LENGTH: Final = 300  # code points

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
PROJECT_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)

# Characters that reorder the text around them: a label with one of these can be made to look like another.
BIDI_CONTROLS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def normalize(text: str) -> str:
    """Unicode normal form C of ``text``."""
    return unicodedata.normalize("NFC", text)


def label_problem(text: str) -> str | None:
    """What forbids ``text`` as a label, in words that do not repeat it; None where nothing does."""
    if not text or len(text) > MAX_LABEL_LENGTH:
        return f"a label has 1 to {MAX_LABEL_LENGTH} characters"
    if text != text.strip():
        return "a label has no spaces at its ends"
    for character in text:
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp"):
            return "a label has no control characters"
        if category == "Cs":
            return "a label has no lone surrogates"
        if character in BIDI_CONTROLS:
            return "a label has no bidirectional controls"
    return None
