"""The privacy page and ``GET /v1/privacy`` of a registry with a group of metrics."""

from pathlib import Path

from werkzeug.test import TestResponse

from dither_server.app import create_app
from support.groups import MEMBERS, group_toml
from support.server import NOW, OPERATOR_KEY, Clock, bearer, settings
from support.store import Store

LIMITED = "[privacy]\nmax_epsilon_lifetime = 30.0\n"


def test_page_and_api_charge_a_group_once(store: Store, tmp_path: Path) -> None:
    """2 + 1 a day instead of 3.5 + 1; so the limit for life lasts ten days, not six or seven."""
    text = group_toml().replace("[metrics.editor_font]", LIMITED + "[metrics.editor_font]")
    app = create_app(settings(tmp_path, store.url, registry_text=text), clock=Clock(NOW))
    client = app.test_client()
    document = client.get("/v1/privacy", headers=bearer(OPERATOR_KEY)).json
    assert document["per_day"]["spent"] == 3.0
    assert document["days_to_lifetime_limit"] == 10.0
    groups = {each["metric"]: each["one_of"] for each in document["metrics"]}
    assert groups["dark_mode"] is None
    assert groups["line_length"] == {"group": "editor", "members": list(MEMBERS), "epsilon_charged": 2.0}
    client.get(f"/login?token={OPERATOR_KEY}")
    page = " ".join(client.get("/privacy").text.split())
    assert page.count("one of the 3 metrics of the group <strong>editor</strong>, drawn by lot") == 3
    assert "charges it with ε = 2" in page
    assert "Of a group a device answers one metric per window" in page


def test_a_plan_by_api_knows_the_group(store: Store, tmp_path: Path) -> None:
    """Of a metric by its registry, of numbers by `one_of`: a third of the devices make its reports."""
    app = create_app(settings(tmp_path, store.url, registry_text=group_toml()), clock=Clock(NOW))
    client = app.test_client()

    def post(**body: object) -> TestResponse:
        return client.post("/v1/plans", json=body, headers=bearer(OPERATOR_KEY))

    plan = post(metric="tab_width", reports=[9_000]).json
    assert [(entry["devices"], entry["n"]) for entry in plan["plans"]] == [(9_000, 3_000)]
    assert (plan["one_of"]["epsilon_charged"], plan["one_of"]["epsilon_otherwise"]) == (2.0, 3.5)
    plan = post(epsilon=1.0, values=2, one_of=5, reports=[10_000], margin=0.1).json
    assert plan["plans"][0]["n"] == 2_000
    assert plan["reports_for_margin"][0]["devices"] == 5 * plan["reports_for_margin"][0]["reports"]
    assert "one_of" not in post(metric="dark_mode", reports=[9_000]).json
    for body, field in (
        ({"epsilon": 1.0, "values": 2, "one_of": 1}, "one_of"),
        ({"metric": "tab_width", "one_of": 3}, "metric"),
        ({"metric": "tab_width", "reports": [2]}, "reports"),
    ):
        refused = post(**body)
        assert (refused.status_code in (400, 422), refused.json["field"]) == (True, field)
