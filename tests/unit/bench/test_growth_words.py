"""The curves of growth as text and as a page."""

import json
import re
from typing import Any

import pytest

from growth_page import page
from growth_words import MARK, cost_text, exponent_text, with_tables


def _curve(key: str, **changes: object) -> dict[str, Any]:
    return {
        "curve": key,
        "title": f"cost of <{key}>",
        "unit": "s",
        "size": "cells",
        "points": [[10, 0.0012], [1_000, 0.1]],
        "exponent": 0.96,
        "faster_than_linear": False,
        "knee": "about 12 cells",
    } | changes


DOCUMENT = {
    "machine": {"cpu": "A processor", "cores": 2, "python": "3.11.7", "system": "Linux"},
    "curves": [
        _curve("cells/publish"),
        _curve("cells/memory", unit="B", points=[[10, 2_048], [100_000, 3_000_000]]),
        _curve("domain/encode grr", size="values", exponent=2.02, faster_than_linear=True),
    ],
}


@pytest.mark.parametrize(
    ("cost", "unit", "text"),
    [
        (0.0, "s", "0 ns"),
        (2.5e-8, "s", "25 ns"),
        (0.0012345, "s", "1.23 ms"),
        (75.2, "s", "75.2 s"),
        (1_234.0, "s", "1,234 s"),
        (920.0, "B", "920 B"),
        (2_048.0, "B", "2 KiB"),
        (3.5 * 2**30, "B", "3.5 GiB"),
    ],
)
def test_a_cost_has_three_digits_and_a_fitting_unit(cost: float, unit: str, text: str) -> None:
    """From nanoseconds to seconds, from bytes to GiB."""
    assert cost_text(cost, unit) == text


def test_an_exponent_that_is_too_large_is_marked() -> None:
    """And one below 0, which is noise, is none."""
    assert exponent_text(_curve("cells/x", exponent=-0.03)) == "0.00"
    assert exponent_text(_curve("cells/x", exponent=1.3, faster_than_linear=True)) == "1.30 !"


def test_the_tables_replace_what_stood_below_the_mark() -> None:
    """What people wrote above it stays; a file without a mark is left alone."""
    text = with_tables(f"# Words\n\n{MARK}\n\nold tables\n", DOCUMENT)
    assert text.startswith(f"# Words\n\n{MARK}\n")
    assert "old tables" not in text
    assert "| cells: 10 to 100,000 | smallest | largest | exponent | knee |" in text
    assert "| cost of <cells/publish> | 1.2 ms | 100 ms | 0.96 | about 12 cells |" in text
    assert with_tables(text, DOCUMENT) == text
    with pytest.raises(ValueError, match="has lost the line"):
        with_tables("# Words\n", DOCUMENT)


def test_the_page_has_every_curve_in_a_chart_and_needs_nobody() -> None:
    """One chart for time and one for memory, of domains one for each kind; texts are escaped; nothing is loaded."""
    html = page(DOCUMENT)
    assert re.findall(r'<div class="chart"[^>]* id="([^"]+)"', html) == [
        "cells-time",
        "cells-memory",
        "domain-encode",
    ]
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found is not None
    assert [curve["chart"] for curve in json.loads(found[1])["curves"]] == [
        "cells-time",
        "cells-memory",
        "domain-encode",
    ]
    assert '<th scope="row">cost of &lt;cells/publish&gt;</th>' in html
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.(?!data:)", html.partition("<script>")[0])
    assert "@@" not in html.partition("<script>")[0]
