"""What a visitor of the dashboard does and sees, beside what the API says."""

import time
from typing import Any

import pytest
import requests

from support.browser import Visitor
from support.server import OPERATOR_KEY, bearer

HANG_LIMIT_S = 240


def sign_in(visitor: Visitor) -> None:
    """Open a session by the address with a key."""
    visitor.page.goto(f"/login?token={OPERATOR_KEY}")
    assert "token" not in visitor.page.url, visitor.page.inner_text("body")


def shown_n(visitor: Visitor, selector: str) -> int:
    """The number of reports that an element shows."""
    return int(visitor.page.locator(selector).get_attribute("data-n") or "")


def wait(visitor: Visitor, condition: str) -> None:
    """Wait for a JavaScript condition on the page, without any reload. The page's policy forbids Playwright's own."""
    loaded = "performance.timeOrigin"
    begun, deadline = visitor.page.evaluate(loaded), time.monotonic() + HANG_LIMIT_S
    while not visitor.page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        visitor.page.wait_for_timeout(50)
    assert visitor.page.evaluate(loaded) == begun, "the page was loaded again"


def n_is(n: int, selector: str = "dd.big") -> str:
    """A condition: an element shows so many reports."""
    return f"document.querySelector('{selector}')?.dataset.n === '{n}'"


def window_is(document: dict[str, Any]) -> str:
    """A condition: the page is about the window of a document."""
    label = document["window"]["label"]
    return f"document.querySelector('#block-values-version-1 h2').textContent.includes('{label}')"


def api_documents(base_url: str, key: str, metric: str, **query: str) -> list[dict[str, Any]]:
    """The estimates of the newest version as the API gives them, earliest first; over all dimensions unless asked."""
    answer = requests.get(
        f"{base_url}/v1/metrics/{metric}/estimates",
        params={"dimensions": "*"} | query,
        headers=bearer(key),
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    documents: list[dict[str, Any]] = answer.json()["versions"][-1]["estimates"]
    return documents


def api_document(base_url: str, key: str, metric: str, dimensions: str = "*", **query: str) -> dict[str, Any]:
    """The latest of them."""
    return api_documents(base_url, key, metric, dimensions=dimensions, **query)[-1]


def compare(figure: dict[str, Any], document: dict[str, Any]) -> None:
    """Bars, marks and both ends of each whisker are the estimates and intervals of a document."""
    bars, raw = figure["data"]
    expected = sorted(document["values"], key=lambda value: -value["estimate"])
    if len(expected) == 2:
        expected = document["values"]
    assert bars["x"] == [value["estimate"] for value in expected]
    for place, value in enumerate(expected):
        low = raw["x"][place] - raw["error_x"]["arrayminus"][place]
        high = raw["x"][place] + raw["error_x"]["array"][place]
        assert [low, high] == pytest.approx(value["interval"], abs=1e-12)
    axis = figure["layout"]["xaxis"]
    assert axis["zeroline"]
    assert axis["range"][0] <= 0 < axis["range"][1]  # the true zero is in sight
