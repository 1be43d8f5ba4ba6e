"""What a query asks for."""

import pytest

from dither_server.problems import Problem
from dither_server.selection import read_selection


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": ""}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-31"}, "to"),
        ({"to": "once"}, "to"),
        ({"rollup": "8"}, "rollup"),
        ({"rollup": ""}, "rollup"),
        ({"rollup": "07"}, "rollup"),
        ({"rollup": "seven"}, "rollup"),
        ({"rollup": "7", "dimensions": "os=linux"}, "dimensions"),
        ({"rollup": "7", "dimensions": ""}, "dimensions"),
        ({"to": "2026-11-29" * 1_000}, "to"),
        ({"dimensions": "linux"}, "dimensions"),
        ({"dimension": "os=linux"}, "dimension"),
        ({"from": "2026-11-29", "form": "2026-11-29"}, "form"),
        ({"<script>": ""}, "query"),
        ({"x" * 33: ""}, "query"),
        ({"from": "2026-11-30", "to": "2026-11-29"}, "from"),
        ({"from": "2026-12", "to": "2026-11-30"}, "from"),
    ],
)
def test_a_query_that_is_not_understood_names_its_parameter(query, field):
    """A wrong parameter is refused, not ignored."""
    with pytest.raises(Problem) as caught:
        read_selection(query)
    assert (caught.value.type, caught.value.field) == ("query-invalid", field)


@pytest.mark.parametrize("rollup", [7, 28, 90])
@pytest.mark.parametrize("dimensions", [{}, {"dimensions": "*"}])
def test_a_rollup_is_a_number_of_windows(rollup, dimensions):
    """Over all dimensions, which may be said."""
    assert read_selection({"rollup": str(rollup)} | dimensions).rollup == rollup
    assert read_selection(dimensions).rollup is None


@pytest.mark.parametrize(
    ("query", "scores"),
    [
        ({}, ("-inf", "+inf")),
        ({"from": "1970-01-02"}, ("86400", "+inf")),
        ({"to": "1970-01-02"}, ("-inf", "(172800")),
        ({"from": "1969-12", "to": "1970-01-01T00"}, ("-2678400", "(3600")),
    ],
)
def test_a_range_is_one_of_the_index(query, scores):
    """From the start of the first window, up to the end of the last, which is not in it."""
    assert read_selection(query).scores == scores


@pytest.mark.parametrize(
    ("window", "taken"),
    [
        ("2026-11-28", False),
        ("2026-11-29", True),
        ("2026-11-30T05", True),
        ("2026-12-01", False),
        ("once", True),
        ("_unknown", True),
    ],
)
def test_what_has_no_date_lies_in_every_range(window, taken):
    """By the start of the window; a label of no period is no reason to leave something out."""
    assert read_selection({"from": "2026-11-29", "to": "2026-11"}).takes(window) is taken
