"""Other levels within bounds: pages that together are the whole, and documents that are computed once."""

import threading
from itertools import chain
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient

from dither_estimator.publication import encode_document, estimate_document, window_scope
from dither_protocol.registry import registry_from_document
from dither_protocol.storage import estimate_field, estimates_key, published_key, published_member
from dither_protocol.windows import parse_window
from dither_server import operator_api, restating
from dither_server.estimates_query import MAX_RESTATED_LIMIT, Intervals
from dither_server.published import first_windows, latest_windows
from dither_server.restating import (
    ANSWER_WEIGHT,
    Remembered,
    restated,
    restated_page,
    weight,
    windows_of_one_answer,
)
from dither_server.selection import Selection
from dither_server.store_rules import Published, PublishedVersion
from support.server import OPERATOR_KEY, bearer, registry
from support.store import Store

BROWSER = registry().metrics["browser"]
DAYS = tuple(f"2126-{month:02}-{day:02}" for month in (7, 8, 9, 10) for day in range(1, 31))
LINUX = (("os", "linux"),)
PATH = "/v1/metrics/browser/estimates"


def _document(number: int, day: str, dimensions: tuple[tuple[str, str], ...] | None) -> bytes:
    window = parse_window("day", day)
    scope = window_scope(window, BROWSER.closes_at(window), final=True)
    counters = np.array([400 + number, 200, 200, 100, 200 - number])
    head = {"revision": 1, "watermark": "2126-11-29T00:00:00Z"}
    return encode_document(head | estimate_document(BROWSER, scope, dimensions, counters, 1_100))


def _publish(store: Store, days: tuple[str, ...] = DAYS) -> None:
    """Put the estimator's documents where the worker does: two cells of each day."""
    with store.client() as redis, redis.pipeline(transaction=False) as pipe:
        for number, day in enumerate(days):
            for dimensions in (None, LINUX):
                field = estimate_field(dimensions)
                pipe.hset(estimates_key("browser", 2, day), field, _document(number, day, dimensions))
            start = parse_window("day", day).start.timestamp()
            pipe.zadd(published_key("browser"), {published_member(2, day): start})
        pipe.execute()


def _pages(client: FlaskClient, **query: str) -> list[list[dict[str, Any]]]:
    pages: list[list[dict[str, Any]]] = []
    cursor: dict[str, str] = {}
    while not pages or cursor:
        answer = client.get(PATH, query_string=query | cursor, headers=bearer(OPERATOR_KEY))
        assert answer.status_code == 200, answer.text
        pages.append(answer.json["versions"][0]["estimates"])
        cursor = {"cursor": answer.json["next"]} if answer.json["next"] else {}
    return pages


@pytest.mark.parametrize("query", [{"level": "0.9"}, {"simultaneous": "true"}])
def test_small_pages_together_are_one_large_one(
    client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    """Every window once, in order, with both its cells and the same numbers, however little one answer may take."""
    _publish(store)
    whole = _pages(client, limit="1000", **query)
    assert [len(page) for page in whole] == [2 * MAX_RESTATED_LIMIT, 2 * (len(DAYS) - MAX_RESTATED_LIMIT)]
    monkeypatch.setattr(restating, "ANSWER_WEIGHT", 100_000)
    small = _pages(client, limit="1000", **query)
    assert len(small) > 10
    assert list(chain(*small)) == list(chain(*whole))
    assert [each["window"]["label"] for page in small for each in page[::2]] == list(DAYS)
    assert all(each["n"] == 1_100 and len(each["values"]) == 5 for page in small for each in page)


def test_reading_and_computing_are_bounded_each_by_itself(
    client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the definition before windows are read, and by the documents that were found, which may be more."""
    monkeypatch.setattr(restating, "ANSWER_WEIGHT", 100_000)
    found = {(day, "*"): _document(number, day, None) for number, day in enumerate(DAYS)}
    page = restated_page(Published([PublishedVersion(2, b"", found)]), Intervals(0.9))
    labels = [label for label, _ in page.versions[0].estimates]
    assert labels == list(DAYS[: len(labels)])
    assert (len(labels), page.last) == (100_000 // weight(found[DAYS[0], "*"]), labels[-1])
    _publish(store)
    monkeypatch.setattr(operator_api, "restated_page", restated)
    assert {len(each) for each in _pages(client, level="0.9", dimensions="*")} == {100_000 // 7_150, 3}


def test_a_published_level_has_the_pages_that_were_asked_for(client: FlaskClient, store: Store) -> None:
    """Nothing is computed for it, so nothing bounds it but ``limit``."""
    _publish(store)
    for query in ({}, {"level": "0.95", "simultaneous": "false"}):
        assert [len(page) for page in _pages(client, limit="1000", **query)] == [2 * len(DAYS)]


def test_one_window_that_is_too_much_is_a_page_of_its_own(
    client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer goes on by one window at the least, whole."""
    _publish(store, DAYS[:3])
    monkeypatch.setattr(restating, "ANSWER_WEIGHT", 1)
    assert [len(page) for page in _pages(client, level="0.9")] == [2, 2, 2]


def _documents(*labels: str, size: int = 10) -> dict[tuple[str, str], bytes]:
    return {(label, "*"): b"x" * size for label in labels}


def test_windows_are_kept_whole_over_versions() -> None:
    """What is left out is left out of every version and of the combined ones; ``last`` names what was read last."""
    days = ("2126-11-20", "2126-11-21", "2126-11-22")
    versions = [PublishedVersion(1, b"", _documents(*days[:2])), PublishedVersion(2, b"", _documents(*days))]
    published = Published(versions, _documents(days[1]), last="later")
    found = first_windows(published, 50, len)
    assert [sorted(label for label, _ in version.estimates) for version in found.versions] == [
        [*days[:2]], [*days[:2]],
    ]  # fmt: skip
    assert (found.last, len(found.combined)) == (days[1], 1)
    assert first_windows(published, 60, len) == published
    latest = latest_windows(published, 1)
    assert [len(version.estimates) for version in latest.versions] == [0, 1]
    assert (latest.combined, latest_windows(published, 5)) == ({}, published)


def test_no_more_is_read_than_one_answer_may_have() -> None:
    """By the labels and the cells of the widest version; unknown metrics are bounded by the limit of a page alone."""
    wide = {"type": "categorical", "description": "d", "epsilon": 1.0, "mechanism": "oue", "version": 1}
    wide |= {"categories": [f"c{number}" for number in range(1_000)], "dimensions": {"os": ["a", "b", "c"]}}
    metric = registry_from_document({"schema": 1, "project": "p", "metrics": {"m": wide}}).metrics["m"]
    assert windows_of_one_answer([metric], Selection(dimensions="*")) == ANSWER_WEIGHT // 236_000
    assert windows_of_one_answer([BROWSER, metric], Selection()) == ANSWER_WEIGHT // (4 * 236_000)
    assert windows_of_one_answer([], Selection()) is None


def test_a_document_is_computed_once_while_it_is_remembered() -> None:
    """The least recently used leave first, and a result as large as everything is not kept."""
    asked: list[bytes] = []

    def compute(key: tuple[bytes, Intervals]) -> bytes:
        asked.append(key[0])
        return key[0]

    remembered, usual = Remembered(compute, 60), Intervals()
    for text in (b"a" * 10, b"b" * 10, b"a" * 10, b"c" * 10, b"a" * 10, b"d" * 10, b"b" * 10):
        assert remembered((text, usual)) == text
    assert b"".join(text[:1] for text in asked) == b"abcdb"
    assert remembered((b"a" * 10, Intervals(0.9))) == b"a" * 10
    assert len(asked) == 6
    for _ in range(2):
        remembered((b"e" * 40, usual))
    assert asked[-2:] == [b"e" * 40] * 2


def test_threads_that_ask_for_the_same_do_not_count_it_twice() -> None:
    """Whoever comes second leaves the books as they are."""
    both = threading.Barrier(2)

    def compute(key: tuple[bytes, Intervals]) -> bytes:
        both.wait(60)
        return key[0]

    remembered = Remembered(compute, 20)
    threads = [threading.Thread(target=remembered, args=((b"x" * 10, Intervals()),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert remembered((b"x" * 10, Intervals())) == b"x" * 10  # still there: a third computation would hang


def test_a_document_weighs_more_than_its_bytes() -> None:
    """Small documents take time as well."""
    assert weight(b"") > 1_000
    assert weight(b"x" * 100) - weight(b"") == 100
