"""A project whose dashboard has something of everything to show, and a reader of its pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import requests

from dither_client import randomize
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_fleet import Fleet, MetricTruth
from dither_protocol.registry import Metric, Registry, parse_registry
from dither_server.app import create_app
from support.server import (
    INGEST_KEY,
    OPERATOR_KEY,
    Server,
    batch,
    bearer,
    running_server,
    settings,
    write_files,
)
from support.store import Store as Valkey

LONG = "long " * 59 + "label"
HOSTILE = (
    "<script>alert(1)</script>",
    "<b>bold</b><img src=x onerror=alert(2)>",
    "مرحبا بالعالم",
    "=cmd|' /C calc'!A0",
    "👩‍👩‍👧‍👦 family 🎉",
    LONG,
    "plain",
)
HOSTILE_DESCRIPTION = '</p><script>alert(3)</script> " onload="alert(4)'
SWEDISH = ', "swedish"'

_REGISTRY = """
schema = 1
project = "example-editor"

[privacy]
max_epsilon_per_day = 100.0
max_epsilon_lifetime = 200.0

[metrics.dark_mode]
version = 1
type = "boolean"
description = "Whether the dark theme is on"
epsilon = 1.0
mechanism = "rr"
period = "hour"
dimensions = { os = ["linux", "macos"] }
min_reports = 50
use_case = "product_analytics"

[metrics.hostile]
version = 1
type = "categorical"
description = DESCRIPTION
categories = [LABELS]
epsilon = 6.0
mechanism = "oue"
period = "day"
min_reports = 50
use_case = "product_analytics"

[metrics.language]
version = VERSION
type = "categorical"
description = "Language of the menus"
categories = ["english", "german", "other"MORE]
epsilon = EPSILON
mechanism = "oue"
period = "day"
min_reports = 50

[metrics.rare]
version = 1
type = "boolean"
description = "Few devices answer this"
epsilon = 0.5
mechanism = "rr"

[metrics.never]
version = 1
type = "boolean"
description = "Nobody has answered this"
epsilon = 1.0
mechanism = "rr"
period = "month"
"""


def registry_text(version: int = 1, *, more: str = "") -> str:
    """The registry, with a version of ``language`` and ``more`` of its labels."""
    quoted = ", ".join('"' + label.replace('"', '\\"') + '"' for label in HOSTILE)
    changes = {
        "DESCRIPTION": "'''" + HOSTILE_DESCRIPTION + "'''",
        "LABELS": quoted,
        "VERSION": str(version),
        "MORE": more,
        "EPSILON": f"{version}.0",
    }
    text = _REGISTRY
    for name, value in changes.items():
        text = text.replace(name, value)
    return text


REFUSED = ("payload-invalid", "payload-invalid", "report-too-old", "unknown-version")
"""Why the reports of `Site.send_refused` are refused, in their order."""


@dataclass
class Site:
    """A live service.

    Attributes:
        server: gunicorn.
        valkey: its store.
        registry: what it asks.
        worker: counts and publishes when the test says so, in this process.
        folder: has the registry and the keys.
    """

    server: Server
    valkey: Valkey
    registry: Registry
    worker: Worker
    folder: Path

    def send(
        self,
        metric: str,
        devices: int,
        shares: list[float],
        *,
        ago: timedelta = timedelta(),
        registry: Registry | None = None,
    ) -> None:
        """Let devices answer one metric, with real noise; those of an older app have their own ``registry``."""
        asked = (registry or self.registry).metrics[metric]
        spread = {name: dict.fromkeys(values, 1 / len(values)) for name, values in asked.dimensions.items()}
        one = replace(self.registry, metrics={metric: asked})
        truths = {metric: MetricTruth(shares, spread)}
        sent = Fleet(self.server.url, INGEST_KEY, one, truths, datetime.now(UTC) - ago).run(
            devices, seed=1, threads=1
        )
        assert sent.accepted[metric] == devices, sent

    def send_long_ago(self, metric: str, devices: int, shares: list[float], ago: timedelta) -> None:
        """Let devices have answered when a window was open that is closed now, with real noise.

        The batch goes through a server of this process whose clock stands then, into the same store.
        """
        when = datetime.now(UTC) - ago
        asked = self.registry.metrics[metric]
        app = create_app(
            settings(self.folder, self.valkey.url, registry_text=(self.folder / "registry.toml").read_text()),
            clock=lambda: when,
        )
        held = np.random.default_rng(1).choice(len(shares), size=devices, p=shares).tolist()
        fields = {"metric": metric, "version": asked.version, "params": asked.params_hash}
        fields["window"] = asked.window_at(when).label
        reports = [fields | {"data": randomize(asked.mechanism, index)} for index in held]
        sent = batch(*reports, until=when.date() + timedelta(days=1))
        answer = app.test_client().post("/v1/reports", json=sent, headers=bearer())
        assert answer.json == {"accepted": devices, "duplicate": False, "rejected": []}, answer.text

    def send_refused(self) -> None:
        """Send what is refused: two payloads that no mechanism made, a window long closed, and a made-up version."""
        now = datetime.now(UTC)
        dark, language = self.registry.metrics["dark_mode"], self.registry.metrics["language"]

        def about(metric: Metric, when: datetime, **changes: object) -> dict[str, object]:
            fields: dict[str, object] = {
                "metric": metric.name,
                "version": metric.version,
                "params": metric.params_hash,
            }
            fields |= {"window": metric.window_at(when).label, "data": 9}
            return (
                fields
                | {"dimensions": {name: values[0] for name, values in metric.dimensions.items()}}
                | changes
            )

        old = about(language, now - timedelta(days=40))
        refused = [about(dark, now), about(dark, now), old, about(dark, now, version=99)]
        sent = batch(*refused, until=now.date() + timedelta(days=1))
        answer = requests.post(f"{self.server.url}/v1/reports", json=sent, headers=bearer(), timeout=60)
        assert [each["type"] for each in answer.json()["rejected"]] == list(REFUSED), answer.text

    def publish(self) -> None:
        """Count everything that waits, and publish it."""
        while self.worker.tick():
            pass

    def sign_in(self) -> None:
        """Let the server's own HTTP session hold a session of the dashboard."""
        answer = self.server.get(f"/login?token={OPERATOR_KEY}", key=None)
        assert answer.status_code == 200, answer.text

    def page(self, path: str) -> "PageReader":
        """A page, read."""
        answer = self.server.get(path, key=None)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        return read_page(answer.text)


@contextmanager
def running_site(folder: Path, valkey: Valkey, *, version: int = 1, more: str = "") -> Iterator[Site]:
    """A gunicorn of two processes over a store, and a worker that has not counted yet."""
    text = registry_text(version, more=more)
    write_files(folder, text)
    with running_server(folder, valkey.url, {"DITHER_WORKERS": "2"}) as server:
        yield Site(server, valkey, parse_registry(text), Worker(Store(valkey.url)), folder)


def fill(site: Site) -> None:
    """Reports about every metric but ``never``, some of them refused, counted and published."""
    for hours in range(4):
        site.send("dark_mode", 400 + 100 * hours, [0.7, 0.3], ago=timedelta(hours=hours))
    for days in range(3):
        site.send("hostile", 500, [0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0.0], ago=timedelta(days=days))
    site.send("language", 600, [0.6, 0.3, 0.1] + [0.0] * (len(site.registry.metrics["language"].labels) - 3))
    site.send("rare", 20, [0.5, 0.5])
    site.send_refused()
    site.publish()


VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})


@dataclass
class Element:
    """An element of a page: its tag, attributes, and what is in it, in order."""

    tag: str
    attributes: dict[str, str]
    content: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        parts = (each if isinstance(each, str) else f" {each.text} " for each in self.content)
        return " ".join("".join(parts).split())

    def every(self, tag: str = "", **attributes: str) -> list["Element"]:
        """The elements below it that have a tag and attributes, in order; ``_`` in names stands for ``-``."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        found = []
        for child in self.content:
            if isinstance(child, str):
                continue
            if tag in ("", child.tag) and wanted.items() <= child.attributes.items():
                found.append(child)
            found += child.every(tag, **attributes)
        return found

    def one(self, tag: str = "", **attributes: str) -> "Element":
        """The only such element."""
        (found,) = self.every(tag, **attributes)
        return found


class PageReader(HTMLParser):
    """Reads a page strictly: every element must be closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].content.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that closes itself, as SVG has them."""
        self._open[-1].content.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        closed = self._open.pop()
        assert closed.tag == tag, f"</{tag}> closes <{closed.tag} {closed.attributes}>"

    def handle_data(self, data: str) -> None:
        """Text."""
        self._open[-1].content.append(data)


def read_page(html: str) -> PageReader:
    """A page as a tree. Fails where its elements are not closed in order, or an id stands twice."""
    reader = PageReader()
    reader.feed(html)
    reader.close()
    ids = [each.attributes["id"] for each in reader.root.every() if "id" in each.attributes]
    assert len(ids) == len(set(ids)), sorted(ids)
    return reader
