"""Two versions of a metric in one range: admitted by the server, counted by the worker, shown by the server's API."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_client import randomize
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import Mechanism
from dither_protocol.mechanisms import Data
from dither_protocol.mechanisms.forms import decode_base64url
from dither_protocol.registry import Metric, parse_registry
from dither_protocol.storage import COMBINED, published_key
from dither_server.app import create_app
from support.server import NOW, OPERATOR_KEY, Clock, batch, bearer, settings
from support.store import Store as Valkey
from support.store import running_store

pytestmark = pytest.mark.usefixtures("engine")

MIN_REPORTS = 50
FIELDS = {"version": "1", "mechanism": '"oue"', "epsilon": "1.0", "period": '"day"'}
LABELS = ["red", "green", "blue", "other"]


@pytest.fixture
def valkey(engine: str) -> Iterator[Valkey]:
    """A store that no server has used yet."""
    with running_store() as store:
        yield store


def _registry(labels: Sequence[str] = LABELS, **changes: str) -> str:
    lines = [f"{name} = {value}" for name, value in (FIELDS | changes).items()]
    categories = ", ".join(f'"{label}"' for label in labels)
    return "\n".join(
        (
            'schema = 1\nproject = "p"\n[metrics.color]\ntype = "categorical"\ndescription = "Colour"',
            f"categories = [{categories}]\nmin_reports = {MIN_REPORTS}",
            'dimensions = { os = ["linux", "macos"] }',
            *lines,
        )
    )


def _server(folder: Path, valkey: Valkey, registry: str) -> FlaskClient:
    """A server of this registry, which announces it to the store."""
    return create_app(settings(folder, valkey.url, registry_text=registry), clock=Clock()).test_client()


def _reports(metric: Metric, answers: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "metric": metric.name,
            "version": metric.version,
            "params": metric.params_hash,
            "window": metric.window_at(NOW).label,
            "dimensions": {"os": ("linux", "macos")[device % 2]},
            "data": randomize(metric.mechanism, answer),
        }
        for device, answer in enumerate(answers)
    ]


def _send(server: FlaskClient, reports: list[dict[str, Any]]) -> list[Data]:
    answer = server.post("/v1/reports", json=batch(*reports), headers=bearer())
    assert (answer.status_code, answer.json["accepted"]) == (202, len(reports)), answer.json
    return [report["data"] for report in reports]


def _work(valkey: Valkey) -> None:
    store = Store(valkey.url)
    Worker(store).tick()
    store.close()


def _answer(server: FlaskClient, query: str = "") -> dict[str, Any]:
    found = server.get(f"/v1/metrics/color/estimates{query}", headers=bearer(OPERATOR_KEY))
    assert found.status_code == 200
    return dict(found.json)


def _supports(data: Data, value: int) -> bool:
    if isinstance(data, int):
        return data == value
    assert isinstance(data, str)
    return bool(decode_base64url(data, 1)[value // 8] >> value % 8 & 1)


def _by_hand(oracle: Mechanism, sent: Sequence[Data], value: int) -> tuple[float, float]:
    """(estimate, standard error) of one value from the reports themselves, by the formulas of design section 6."""
    pi = sum(_supports(data, value) for data in sent) / len(sent)
    gap = oracle.p - oracle.q
    return (pi - oracle.q) / gap, math.sqrt(pi * (1 - pi) / len(sent)) / gap


def test_two_versions_are_shown_and_combined_weighted_by_n(valkey: Valkey, tmp_path: Path) -> None:
    """By oue, then by grr at another epsilon: both stand as they are, and beside them what they say together."""
    texts = [_registry(), _registry(version="2", mechanism='"grr"', epsilon="2.0")]
    old, new = (parse_registry(text).metric("color") for text in texts)
    first = _server(tmp_path, valkey, texts[0])
    sent_old = _send(first, _reports(old, [0, 0, 1, 2] * 50))
    second = _server(tmp_path, valkey, texts[1])
    sent_old += _send(second, _reports(old, [3] * 100))  # a device that has not fetched the new version yet
    sent_new = _send(second, _reports(new, [0, 1, 1] * 35))
    _work(valkey)

    for server in (first, second):
        answer = _answer(server, "?dimensions=*")
        assert [(v["version"], [e["n"] for e in v["estimates"]]) for v in answer["versions"]] == [
            (1, [300]),
            (2, [105]),
        ]
        assert answer["combination"]["rule"] == "weighted-by-n"
    (joint,) = answer["combined"]
    assert (joint["n"], joint["versions"], joint["status"], joint["dimensions"]) == (
        405, [1, 2], "open", None,
    )  # fmt: skip
    named = ("version", "n", "mechanism", "epsilon")
    assert [{name: part[name] for name in named} for part in joint["parts"]] == [
        {"version": 1, "n": 300, "mechanism": "oue", "epsilon": 1.0},
        {"version": 2, "n": 105, "mechanism": "grr", "epsilon": 2.0},
    ]
    own = [version["estimates"][0]["values"] for version in answer["versions"]]
    weights = (300 / 405, 105 / 405)
    for value, row in enumerate(joint["values"]):
        parts = [_by_hand(old.mechanism, sent_old, value), _by_hand(new.mechanism, sent_new, value)]
        assert row["value"] == LABELS[value]
        assert row["estimate"] == pytest.approx(sum(w * e for w, (e, _) in zip(weights, parts, strict=True)))
        assert row["std_error"] == pytest.approx(
            math.hypot(*(w * s for w, (_, s) in zip(weights, parts, strict=True)))
        )
        for side in (0, 1):
            reach = [each[value]["interval"][side] - each[value]["estimate"] for each in own]
            total = math.hypot(*(w * r for w, r in zip(weights, reach, strict=True)))
            assert abs(row["interval"][side] - row["estimate"]) == pytest.approx(total)


def test_combined_estimates_are_over_all_dimensions_and_in_the_range(valkey: Valkey, tmp_path: Path) -> None:
    """Another day, or one value of a dimension, has both versions' estimates or none, and nothing combined."""
    texts = [_registry(), _registry(version="2", mechanism='"grr"')]
    for text in texts:
        server = _server(tmp_path, valkey, text)
        _send(server, _reports(parse_registry(text).metric("color"), [0] * 120))
    _work(valkey)
    assert [document["n"] for document in _answer(server)["combined"]] == [240]
    linux = _answer(server, "?dimensions=os=linux")
    assert [len(version["estimates"]) for version in linux["versions"]] == [1, 1]
    assert (linux["combined"], "all dimensions" in linux["combination"]["reason"]) == ([], True)
    later = _answer(server, f"?from={NOW.year + 1}-01")
    assert (later["combined"], later["combination"]["rule"]) == ([], "single-version")


@pytest.mark.parametrize(
    ("second", "word"),
    [
        (_registry([*LABELS, "violet"], version="2", mechanism='"grr"'), "labels"),
        (_registry(["green", "red", "blue", "other"], version="2", mechanism='"grr"'), "labels"),
        (_registry(version="2", mechanism='"grr"', period='"week"'), "periods"),
    ],
    ids=["one more label", "another order", "another period"],
)
def test_versions_of_different_domains_stand_side_by_side(
    valkey: Valkey, tmp_path: Path, second: str, word: str
) -> None:
    """Each version has its own estimate, nothing is published over both, and the reason is said."""
    for text in (_registry(), second):
        server = _server(tmp_path, valkey, text)
        _send(server, _reports(parse_registry(text).metric("color"), [0, 1] * 60))
    _work(valkey)
    answer = _answer(server, "?dimensions=*")
    assert [(v["version"], [e["n"] for e in v["estimates"]]) for v in answer["versions"]] == [
        (1, [120]),
        (2, [120]),
    ]
    assert answer["combination"] == {
        "rule": "side-by-side",
        "reason": f"the versions have different {word}",
    }
    assert answer["combined"] == []
    with valkey.client() as client:
        members = client.zrange(published_key("color"), 0, -1)
        assert not [member for member in members if member.startswith(COMBINED.encode())]


def test_below_min_reports_nothing_is_combined(valkey: Valkey, tmp_path: Path) -> None:
    """A version with too few reports is suppressed, and cannot be worked out from a combined estimate either."""
    texts = [_registry(), _registry(version="2", mechanism='"grr"')]
    for text, n in zip(texts, (200, MIN_REPORTS - 1), strict=True):
        server = _server(tmp_path, valkey, text)
        _send(server, _reports(parse_registry(text).metric("color"), [0] * n))
    _work(valkey)
    answer = _answer(server, "?dimensions=*")
    assert [version["estimates"][0]["status"] for version in answer["versions"]] == ["open", "suppressed"]
    assert (answer["combined"], "min_reports" in answer["combination"]["reason"]) == ([], True)
