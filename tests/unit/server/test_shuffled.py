"""What a shuffle would add: the bound of fewer reports, and nothing where the bound says nothing."""

from typing import Any

import msgspec
import pytest

from dither_protocol import shuffled_epsilon
from dither_server.documents import Estimate
from dither_server.shuffled import amplified


def _estimate(n: int, **changes: Any) -> Estimate:
    span = {"label": "2026-11-29", "start": "2026-11-29T00:00:00Z", "end": "2026-11-30T00:00:00Z"}
    document = {
        "metric": "browser",
        "window": span,
        "status": "final",
        "n": n,
        "mechanism": "grr",
        "epsilon": 1.0,
    }
    return msgspec.convert(document | changes, Estimate)


def test_the_bound_is_that_of_reports_cut_to_one_digit() -> None:
    """27,431 reports are promised what 20,000 have, with a delta below 1/n^2, and never less than the truth."""
    found = amplified(_estimate(27_431))
    assert found is not None
    assert found.epsilon == shuffled_epsilon(1.0, 20_000, 1e-10).epsilon < 1.0
    assert found.delta == pytest.approx(1e-10)
    assert found.delta < 1 / 27_431**2
    assert found.epsilon > shuffled_epsilon(1.0, 27_431, 1e-10).epsilon


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 99},
        {"n": 0},
        {"rollup": 7},
        {"epsilon": None},
        {"n": 150, "epsilon": 8.0},
        {
            "parts": [
                {"version": 1, "n": 500, "mechanism": "grr", "epsilon": 1.0},
                {"version": 2, "n": 500, "mechanism": "grr", "epsilon": 2.0},
            ]
        },
    ],
    ids=["few reports", "none", "several windows", "no epsilon", "nothing gained", "several mechanisms"],
)
def test_where_the_bound_says_nothing_there_is_none(changes: dict[str, Any]) -> None:
    """An estimate for which it does not hold, or which gains nothing, has no bound beside it."""
    assert amplified(_estimate(**({"n": 1_000} | changes))) is None
