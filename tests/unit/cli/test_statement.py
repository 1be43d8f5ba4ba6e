"""`dither registry statement`: what it says follows from the registry, and no label breaks out of it."""

import json
import re
from datetime import date
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result
from markdown_it import MarkdownIt

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.statement import statement
from dither_cli.statement_command import FORMATS, rendered
from dither_cli.statement_formats import markdown
from dither_cli.statement_layout import MAX_ANSWERS, Grid
from dither_cli.statement_words import factor, shown
from dither_client.consent import standing
from dither_client.explain import explain
from dither_protocol.errors import RegistryError
from dither_protocol.registry import Registry, registry_from_document
from support.dashboard import read_page

DAY = date(2026, 11, 30)
HOSTILE = [
    "<script>alert(1)</script>", "</bdi></p><img src=x onerror=alert(2)>", "**bold** _it_ ~~gone~~ `code`",
    "| a | b |", "[x](javascript:alert(3))", "![x](https://example.org/x.png)", "&lt;b&gt; &amp;",
    "<https://example.org>", "https://example.org www.example.org", "# heading", "- item", "1. item", "\\*x\\*", "$x$",
    "[^1]: note", "'\"", "مرحبا", "===",
]  # fmt: skip


def _table(**changes: Any) -> dict[str, Any]:
    table = {
        "version": 1, "type": "boolean", "description": "Whether the dark theme is on", "epsilon": 1.0,
        "mechanism": "rr", "expires": "2026-12-02", "owner": "telemetry@example.org",
    } | changes  # fmt: skip
    return {key: value for key, value in table.items() if value is not None}


def _registry(privacy: dict[str, float] | None = None, **metrics: dict[str, Any]) -> Registry:
    return registry_from_document({"schema": 1, "project": "p", "privacy": privacy or {}, "metrics": metrics})


def _hostile() -> Registry:
    table = _table(
        type="categorical",
        categories=HOSTILE,
        description="# Hi\n\n<script>alert(4)</script>\n- \u202eevil\u202c | **x**",
        owner="1. [me](javascript:alert(5)) <b>",
        mechanism="grr",
        dimensions={"channel": HOSTILE},
    )
    return _registry(hostile=table)


def _validator() -> Any:
    text = (files("dither_cli.data") / "statement.schema.json").read_text(encoding="utf-8")
    return jsonschema_rs.validator_for(json.loads(text), validate_formats=True)


class _Html(HTMLParser):
    """Tags, attributes that load or run something, and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.add(tag)
        self.loads += [each for each in attrs if each[0] in ("href", "src") or each[0].startswith("on")]

    def handle_data(self, data: str) -> None:
        """Note it."""
        self.text += data


def test_the_numbers_are_those_of_the_registry() -> None:
    """Two metrics by hand: sums by span beside the limits, p and q, odds, and what nobody owns."""
    registry = _registry(
        {"max_epsilon_per_day": 6.0, "max_epsilon_lifetime": 10.0},
        dark=_table(dimensions={"os": ["a", "b"]}),
        hourly=_table(period="hour", epsilon=0.25, owner=None, expires=None),
    )
    found = statement(registry, DAY)
    assert (found["project"], found["day"], found["contacts"]) == (
        "p",
        "2026-11-30",
        ["telemetry@example.org"],
    )
    spans = found["spending"]["spans"]
    assert [spans[each]["epsilon"] for each in ("day", "week", "year", "life")] == [8.0, 48.0, 2202.0, None]
    assert [spans[each]["limit"] for each in ("day", "week", "year", "life")] == [6.0, None, None, 10.0]
    assert [spans[each]["at_most"] for each in ("day", "week", "year", "life")] == [6.0, 10.0, 10.0, 10.0]
    dark, hourly = found["metrics"]
    assert dark["spending"]["life"] == {"reports": 6, "epsilon": 6.0}
    assert (dark["noise"]["p"], dark["noise"]["q"]) == pytest.approx((0.731059, 0.268941), abs=1e-6)
    assert dark["noise"]["odds_factor"] == pytest.approx(2.718282)
    assert "In 26.9 % of all reports the answer that leaves is a lie" in dark["noise"]["words"][0]
    assert "at most 73.1 % sure" in dark["noise"]["words"][2]
    assert dark["how_often"].endswith("combination of os. The last day begins on 2026-12-02 or before.")
    assert (hourly["owner"], hourly["expires"]) == (None, None)
    assert "no day on which this ends" in hourly["how_often"]


def test_lasting_answers_say_what_they_cost_and_assume() -> None:
    """Charged once for life; what stays on the device, what may show, and the assumption, where they are asked for."""
    lasting = _table(
        mechanism="grr", collection="memoized", epsilon_permanent=3.0, max_distinct_values=2, expires=None
    )
    found = statement(_registry(dark=lasting), DAY)
    (dark,) = found["metrics"]
    assert [dark["spending"][span]["epsilon"] for span in ("day", "week", "year", "life")] == [6.0] * 4
    assert (dark["noise"]["epsilon_permanent"], dark["noise"]["max_distinct_values"]) == (3.0, 2)
    assert "costs epsilon 6 once for life (2 times 3)" in dark["noise"]["words"][-1]
    assert "change at the same times" in " ".join(found["assumptions"])
    assert "a new yes they are drawn anew, and charged anew" in " ".join(found["assumptions"])
    assert "keyed fingerprint" in found["never_leaves"][0]
    assert re.search(r"so many reports cost as many times epsilon [\d.]+\.$", dark["noise"]["words"][-1])
    bits = statement(_registry(dark=lasting | {"mechanism": "oue"}), DAY)["metrics"][0]["noise"]["words"][-1]
    assert bits.endswith("nothing useful is guaranteed over many reports.")
    fresh = statement(_registry(dark=_table()), DAY)
    for words in ("assumptions", "never_leaves", "leaves"):
        assert not re.search("[Ll]asting|keyed", " ".join(fresh[words]))


def test_what_happens_before_anybody_has_decided_is_said() -> None:
    """The SDK takes silence for a yes unless the app says otherwise: whoever reads must not think that it waits."""
    assert standing(None, None, {}).consent
    assert not standing(None, False, {}).consent
    said = " ".join(statement(_registry(dark=_table()), DAY)["saying_no"])
    assert (
        "While you have not decided, questions are answered, unless the app was built to wait for your yes"
        in said
    )


def test_the_words_are_those_that_the_device_shows() -> None:
    """The sentences about noise are the SDK's own: a person reads the same in both places."""
    registry = _registry(
        dark=_table(), many=_table(type="categorical", categories=["a", "b", "c"], mechanism="oue")
    )
    for metric, said in zip(registry, statement(registry, DAY)["metrics"], strict=True):
        lines = explain(metric).split("\n")
        assert set(said["noise"]["words"][:2]) <= set(lines)


@pytest.mark.parametrize(
    "registry", [_registry(dark=_table()), _hostile(), _registry(endless=_table(expires=None))]
)
def test_the_json_form_keeps_its_schema(registry: Registry) -> None:
    """The schema that is shipped describes it, and would refuse one without its numbers."""
    document = json.loads(rendered(statement(registry, DAY), "json"))
    validator = _validator()
    validator.validate(document)
    del document["spending"]["spans"]["year"]
    assert not validator.is_valid(document)


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_every_question_is_answered_in_both_forms(form: str) -> None:
    """What is asked, what leaves, what does not, how much, why, how to say no, whom to ask: each under a heading."""
    text = rendered(statement(_registry(dark=_table()), DAY), form)
    html = text if form == "html" else MarkdownIt("commonmark").enable("table").render(text)
    headings = re.findall(r"<h2>(.*?)</h2>", html)
    assert headings == [
        "What is asked", "What leaves your device", "What never leaves it", "How much privacy is spent",
        "Why that holds", "What it assumes", "How to say no", "Whom to ask",
    ]  # fmt: skip
    for said in ("Whether the dark theme is on", "DO_NOT_TRACK=1", "telemetry@example.org", "epsilon 3"):
        assert said in _Html(html).text
    assert not re.search(r"(high|strong|great|full|perfect) privacy", html, re.IGNORECASE)


def test_hostile_texts_stay_texts_in_html() -> None:
    """The page is well formed, loads and runs nothing, and shows every label as it is."""
    page = rendered(statement(_hostile(), DAY), "html")
    root = read_page(page.removeprefix("<!doctype html>\n")).root
    found = _Html(page)
    assert found.loads == []
    assert not found.tags & {"script", "img", "a", "iframe", "b", "form", "object", "link"}
    for label in HOSTILE:
        assert label in found.text
    assert root.one("html").attributes == {"lang": "en"}
    assert "default-src 'none'" in page
    tables = root.every("table")
    assert len(tables) >= 2
    assert all(head.attributes.get("scope") for table in tables for head in table.every("th"))
    assert all(table.every("caption") for table in tables)


def test_hostile_texts_stay_texts_in_markdown() -> None:
    """A reader of Markdown that lets HTML through, knows tables and strikes makes nothing of any label."""
    text = rendered(statement(_hostile(), DAY), "markdown")
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    found = _Html(reader.render(text))
    assert found.loads == []
    assert found.tags <= {
        "h1",
        "h2",
        "h3",
        "p",
        "ul",
        "li",
        "strong",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    for label in HOSTILE:
        assert label in found.text
    assert "://" not in text.replace("\\://", "")  # bare addresses become links elsewhere


def test_a_bar_in_a_table_begins_no_cell() -> None:
    """Of Markdown: as many cells as columns, each with its text."""
    text = markdown([Grid("a|b", ("", "c|d"), [("e|f", "`g|h`")])])
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", MarkdownIt("commonmark").enable("table").render(text))
    assert cells == ["", "c|d", "e|f", "`g|h`"]


def test_marks_that_reorder_text_are_gone() -> None:
    """The registry refuses them in labels; in descriptions they are left out of every form, with line breaks."""
    for form in FORMATS:
        assert not re.search(
            "[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]", rendered(statement(_hostile(), DAY), form)
        )
    assert shown("# Hi\n\n\u202eevil\u202c  x\u2028y") == "# Hi evil x y"
    with pytest.raises(RegistryError, match="bidirectional"):
        _registry(m=_table(type="categorical", categories=["a", "\u202eb"]))


def test_long_lists_of_answers_are_cut_for_people_alone() -> None:
    """At most a hundred answers are written out; programs get all of them."""
    labels = [f"value{number}" for number in range(MAX_ANSWERS + 5)]
    document = statement(_registry(m=_table(type="categorical", categories=labels, mechanism="grr")), DAY)
    assert document["metrics"][0]["answers"] == labels
    for form in ("markdown", "html"):
        text = rendered(document, form)
        assert "and 5 more" in text
        assert labels[MAX_ANSWERS - 1] in text
        assert labels[MAX_ANSWERS] not in text


def test_odds_in_words() -> None:
    """e^epsilon to three digits, a power of ten that is never below it."""
    assert factor(1.0) == "2.72"
    assert factor(6.9) == "992"
    assert factor(7.0) == "less than 10 to the power of 4"  # e^7 = 1,097
    assert factor(200.0) == "less than 10 to the power of 87"  # e^200 = 7.2e86


def _run(tmp_path: Path, *options: str, text: str = "") -> Result:
    file = tmp_path / "registry.toml"
    table = '[metrics.m]\nversion = 1\ntype = "boolean"\ndescription = "d"\nepsilon = 1.0\n'
    file.write_text(text or f'schema = 1\nproject = "p"\n{table}', encoding="utf-8")
    return CliRunner().invoke(cli, ["registry", "statement", str(file), *options])


@pytest.mark.parametrize(
    ("form", "begins"), [("markdown", "# Privacy"), ("html", "<!doctype html>"), ("json", "{")]
)
def test_it_is_printed_or_written(tmp_path: Path, form: str, begins: str) -> None:
    """The same bytes on standard output and in a file."""
    printed = _run(tmp_path, "--format", form)
    assert (printed.exit_code, printed.output[: len(begins)]) == (ExitCode.OK, begins)
    out = tmp_path / "statement"
    written = _run(tmp_path, "--format", form, "--out", str(out))
    assert (written.exit_code, written.output) == (ExitCode.OK, "")
    assert out.read_text(encoding="utf-8") == printed.output


def test_a_bound_above_the_limits_is_not_shown() -> None:
    """Of more reports than a device ever sends it says nothing; one below the limits is shown."""

    def shown_rows(limit: float) -> str:
        registry = _registry({"max_epsilon_lifetime": limit}, m=_table(period="hour", expires="2026-12-31"))
        return rendered(statement(registry, DAY), "markdown").partition("By other rules")[2]

    assert shown_rows(10_000.0).count("| 1e-06 |") == 3
    assert shown_rows(50.0) == ""


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    """A registry that is refused, and a folder that is not there: one line, exit 1."""
    refused = _run(tmp_path, text="schema = 2")
    assert refused.exit_code == ExitCode.FAILED
    assert "schema" in refused.output
    lost = _run(tmp_path, "--out", str(tmp_path / "no" / "file"))
    assert lost.exit_code == ExitCode.FAILED
    assert "Traceback" not in lost.output
