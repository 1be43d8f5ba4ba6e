"""The README of the SDK says what the code does."""

import re
from pathlib import Path

import dither_client
from dither_client import RecordStatus, errors, transport
from dither_protocol.wire import decode_json, parse_envelope, parse_report
from support.registries import small_registry

ROOM = Path(dither_client.__file__).parents[1]
README = (ROOM / "README.md").read_text("utf-8")


def _section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_file_stands_in_the_reading_order() -> None:
    """Each module and folder of the package, and none that is gone."""
    package = ROOM / "dither_client"
    there = {path.name for path in package.glob("*.py")} | {
        path.name + "/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    named = re.findall(r"`([a-z_]+(?:\.py|/))`", _section("Files, in reading order"))
    assert set(named) == there - {"__init__.py"}


def test_every_status_and_reason_stands_in_its_table() -> None:
    """The words that an app may meet, those of the state's errors among them."""
    table = _section("What `record()` answers")
    sources = [
        (ROOM / "dither_client" / name).read_text("utf-8")
        for name in ("client.py", "recording.py", "default.py", "errors.py")
    ]
    reasons = set(re.findall(r'RecordStatus\.(?:DROPPED|DISABLED), "(\w+)"', "".join(sources)))
    reasons |= {kind.reason for kind in errors.StateError.__subclasses__()} - {"broken"}
    assert len(reasons) > 10
    for word in [*RecordStatus, *reasons]:
        assert f"`{word}`" in table, word


def test_every_final_status_stands_in_its_table() -> None:
    """And only those are said to drop."""
    (line,) = [line for line in _section("What becomes of a try").splitlines() if line.startswith("| 400")]
    assert {int(status) for status in re.findall(r"\b4\d\d\b", line)} == transport._FINAL


def test_the_request_shown_is_one_that_could_be() -> None:
    """Its length is right, its batch parses, and its report has the metric's own params and form."""
    (request,) = re.findall(r"```\n(POST .*?)\n```", README, re.DOTALL)
    head, body = request.split("\n\n")
    assert f"Content-Length: {len(body)}" in head
    (document,) = parse_envelope(decode_json(body)).reports
    report = parse_report(document)
    metric = small_registry().metric("color")
    assert report.params == metric.params_hash
    metric.mechanism.pack(report.data)


def test_every_variable_of_the_environment_stands_in_its_table() -> None:
    """What the sources read, and nothing else."""
    package = ROOM / "dither_client"
    read = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"DITHER_[A-Z_]+|DO_NOT_TRACK", path.read_text("utf-8"))
    }
    assert set(re.findall(r"DITHER_[A-Z_]+|DO_NOT_TRACK", _section("Environment"))) == read
