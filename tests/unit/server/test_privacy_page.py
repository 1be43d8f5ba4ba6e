"""The privacy page and ``GET /v1/privacy`` of a registry with limits: the same figures, counted by hand."""

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from dither_server import formats
from dither_server.app import create_app
from support.dashboard import Element, read_page
from support.server import NOW, OPERATOR_KEY, Clock, bearer, settings
from support.store import Store

REGISTRY = """
schema = 1
project = "p"
[privacy]
max_epsilon_per_day = 12.5
max_epsilon_lifetime = 642.0
[metrics.hourly]
version = 1
type = "boolean"
description = "</ul><script>alert(1)</script>"
epsilon = 0.5
mechanism = "rr"
period = "hour"
expires = 2126-12-31
[metrics.lasting]
version = 1
type = "categorical"
description = "Theme"
categories = ["a", "b", "c"]
epsilon = 1.0
mechanism = "grr"
collection = "memoized"
epsilon_permanent = 2.0
max_distinct_values = 3
use_case = "product_analytics"
"""


@pytest.fixture
def asked(store: Store, tmp_path: Path) -> FlaskClient:
    """Friday, 29 November 2126."""
    app = create_app(settings(tmp_path, store.url, registry_text=REGISTRY), clock=Clock(NOW))
    client: FlaskClient = app.test_client()
    client.get(f"/login?token={OPERATOR_KEY}")
    return client


def _page(client: FlaskClient) -> Element:
    answer = client.get("/privacy")
    assert answer.status_code == 200, answer.text[:500]
    return read_page(answer.text).root


def test_the_page_shows_what_the_api_says(asked: FlaskClient) -> None:
    """By span, beside the limits: 33 days of 24 windows are left, and the lasting answers cost 6 in any of them."""
    spans = asked.get("/v1/privacy", headers=bearer(OPERATOR_KEY)).json["spans"]
    epsilons = {"day": 12 + 6, "week": 84 + 6, "year": 396 + 6, "life": 396 + 6}
    at_most = {"day": 12.5, "week": 87.5, "year": 402.0, "life": 402.0}
    page = _page(asked)
    for span, epsilon in epsilons.items():
        assert (spans[span]["epsilon"], spans[span]["at_most"]) == (epsilon, at_most[span])
        box = page.one("div", data_span=span)
        assert box.one("p", class_="big").text == f"ε = {epsilon}"
        assert ("above it" in box.text) == spans[span]["over"] == (span == "day")
    assert "hold a device to ε = 87.5" in page.one("div", data_span="week").text
    assert "Its limits" not in page.one("div", data_span="year").text
    assert "after about 53 days" in page.one("section", id="budget").text  # (642 - 6) / 12
    row = [each.text for each in page.one("tr", data_metric="hourly").every("td")]
    assert row == ["0.5", "12", "84", "396", "396"]
    assert [each.text for each in page.one("tr", data_metric="lasting").every("td")] == ["1", *["6"] * 4]


def test_closer_bounds_name_their_rule_and_their_assumption(asked: FlaskClient) -> None:
    """Those of the API that are below the plain sum stand in the table; lasting answers are named in each."""
    spans = asked.get("/v1/privacy", headers=bearer(OPERATOR_KEY)).json["spans"]
    (details,) = _page(asked).one("section", id="budget").every("details")
    table = details.one("table")
    shown = [[cell.text for cell in row.every("td")[:3]] for row in table.every("tr") if row.every("td")]
    expected = [
        [bound["name"], formats.number(bound["epsilon"]), "1e-06"]
        for span in ("day", "week", "year")
        for bound in spans[span]["bounds"]
        if bound["epsilon"] < 0.99 * spans[span]["epsilon"]
    ]
    assert shown == expected
    assert {each[0] for each in shown} >= {"rdp", "exact"}
    assumed = [each.text for each in details.every("li")]
    assert {each.split(" :")[0] for each in assumed} == {each[0] for each in shown}
    assert all("(lasting)" in each for each in assumed)


def test_the_page_promises_no_consent_that_nobody_asked_for(asked: FlaskClient) -> None:
    """The SDK takes silence for a yes unless the app says otherwise; a no is always kept."""
    text = asked.get("/privacy").text
    assert "agreed" not in text
    assert text.count("and none after the person has said no.") == 2
    assert "after a no and a new yes, memoised metrics are charged anew" in text


def test_hostile_descriptions_stay_text(asked: FlaskClient) -> None:
    """They are shown as they are, and close or open nothing."""
    page = _page(asked)
    assert "</ul><script>alert(1)</script>" in page.one("section", id="words").text
    assert all("src" in each.attributes for each in page.every("script"))
