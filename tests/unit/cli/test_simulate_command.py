"""``dither simulate``: what it refuses, which server it loads, and its page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dither_cli.api_client import ApiError
from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.parts import example_registry
from dither_cli.simulate_output import shown_problems
from dither_cli.simulate_page import page
from dither_cli.simulate_place import Target, find_target, successor
from dither_protocol.registry import parse_registry
from support.http import Answer, scripted_server

URL = "http://127.0.0.1:8787"


def _find(server: str | None = None, **changes: Any) -> Target | None:
    given: dict[str, Any] = {"ingest_key": None, "operator_key": None, "state_dir": None}
    given |= {"environ": {}, "allow_remote": False} | changes
    places = [given.pop(name) for name in ("ingest_key", "operator_key", "state_dir")]
    return find_target(server, *places, **given)


def test_without_a_server_one_is_started() -> None:
    """Even where the environment names one: a load test loads only what it was told to."""
    environ = {"DITHER_ENDPOINT": URL, "DITHER_INGEST_KEY": "a", "DITHER_OPERATOR_TOKEN": "b"}
    assert _find(environ=environ) is None


def test_keys_of_the_environment_go_to_its_own_server_alone() -> None:
    """They were given for DITHER_ENDPOINT."""
    environ = {"DITHER_ENDPOINT": URL, "DITHER_INGEST_KEY": "a", "DITHER_OPERATOR_TOKEN": "b"}
    found = _find(URL + "/", environ=environ)
    assert found is not None
    assert (found.url, found.ingest_key) == (URL, "a")
    with pytest.raises(ApiError, match="needs --key"):
        _find("http://127.0.0.1:9999", environ=environ)
    given = _find("http://127.0.0.1:9999", ingest_key="c", operator_key="d", environ=environ)
    assert given is not None
    assert given.ingest_key == "c"


def test_a_state_directory_has_address_and_keys(tmp_path: Path) -> None:
    """Those of the `dither serve` that was started there; none is an error that names the folder."""
    with pytest.raises(ApiError, match="no dither serve was started"):
        _find(state_dir=tmp_path)
    lines = {"DITHER_ENDPOINT": URL, "DITHER_INGEST_KEY": "a", "DITHER_OPERATOR_TOKEN": "b"}
    (tmp_path / "env").write_text("".join(f"export {name}={value}\n" for name, value in lines.items()))
    found = _find(state_dir=tmp_path)
    assert found is not None
    assert (found.url, found.ingest_key) == (URL, "a")
    with pytest.raises(ApiError, match="not both"):
        _find(URL, state_dir=tmp_path)


def test_another_machine_is_loaded_only_when_that_is_said() -> None:
    """A load test of somebody else's server is an attack; and no key leaves in the clear."""
    keys = {"ingest_key": "a", "operator_key": "b"}
    with pytest.raises(ApiError, match="--allow-remote"):
        _find("https://dither.example.org", **keys)
    assert _find("https://dither.example.org", allow_remote=True, **keys) is not None
    with pytest.raises(ApiError, match="plain http"):
        _find("http://dither.example.org", allow_remote=True, **keys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--profile", "spike"], "needs a --rate"),
        (["--faults", "lost=1"], "lost=1"),
        (["--devices", "100000000", "--days", "2"], "may be at most"),
        (["--in-process", "--server", URL], "goes with neither"),
        (["--server", URL], "needs --key"),
        (["--rate", "0"], "--rate"),
        (["--html", "/nowhere/at/all.html"], "does not exist"),
        (
            ["--server", URL, "--key", "a", "--operator-key", "b", "--registry", str(example_registry())],
            "--registry",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(options: list[str], said: str) -> None:
    """With exit code 2 and the option that is wrong."""
    ran = CliRunner().invoke(cli, ["simulate", *options])
    assert ran.exit_code == ExitCode.USAGE, ran.output
    assert said in ran.output


@pytest.mark.parametrize(
    ("status", "code"), [(401, ExitCode.USAGE), (403, ExitCode.USAGE), (0, ExitCode.SERVICE)]
)
def test_keys_are_tried_before_any_device_comes(status: int, code: ExitCode) -> None:
    """One request without a report tells; a server that is not there is another matter."""
    with scripted_server(Answer(status=status, body=b"")) as server:
        options = ["--server", server.url, "--key", "a", "--operator-key", "b", "--devices", "1000000"]
        ran = CliRunner().invoke(cli, ["simulate", *options])
        assert len(server.bodies) == 1
    assert ran.exit_code == code, ran.output
    assert server.url in ran.output


def test_a_dry_run_makes_everything_and_sends_nothing() -> None:
    """It says how many were made, and how fast."""
    ran = CliRunner().invoke(cli, ["simulate", "--devices", "1000", "--processes", "1", "--dry-run"])
    assert ran.exit_code == 0, ran.output
    assert "1,000 devices, 2,000 batches, 5,000 reports made and sealed" in " ".join(ran.output.split())


def test_a_successor_has_one_metric_one_version_on() -> None:
    """The given registry is an old one beside it; what cannot be changed so is left alone."""
    text = example_registry().read_text("utf-8")
    newer = successor(text)
    assert newer is not None
    before, after = parse_registry(text), parse_registry(newer)
    raised = [name for name in after.metrics if after.metrics[name] != before.metrics[name]]
    assert len(raised) == 1
    assert after.metrics[raised[0]].version == before.metrics[raised[0]].version + 1
    assert successor("{}") is None
    assert successor(text.replace("version = ", "version=")) is None


def _document() -> dict[str, Any]:
    """What a run found, with texts that would break a careless page."""
    hostile = "</script><script>alert(1)</script> @@data@@ <!--"
    line = {"metric": hostile, "sent": 9, "accepted": 9, "ledger_accepted": 9, "counted": 9, "published": 9}
    point = {"at_s": 0, "planned": None, "accepted": 9, "duplicate": 0, "refused": 0, "retry": 0}
    plan = {"devices": 9, "days": 1, "profile": "steady", "rate": None, "faults": "none", "seed": 1}
    return {
        "passed": False,
        "problems": [hostile],
        "project": hostile,
        "server": URL,
        "plan": plan | {"processes": 1, "connections": 1, "together": 1},
        "devices": 9,
        "devices_left_out": 0,
        "batches": 9,
        "requests": 9,
        "reports": {"accepted": 9, "rejected": {}, "duplicate": 0},
        "refused_batches": {},
        "retries": {},
        "sending_s": 1.0,
        "counting_s": 1.0,
        "devices_per_s": 9.0,
        "reports_per_s": 9.0,
        "latency_s": {"p50": 0.01, "p95": 0.02, "p99": None},
        "waited_s": {"p50": None, "p95": None, "p99": None},
        "metrics": [line],
        "coverage": {
            "level": 0.95,
            "scopes": [{"scope": "over all devices", "intervals": 2, "missed": 1, "limit": 1}],
            "metrics": [
                {
                    "metric": hostile,
                    "mechanism": "rr",
                    "epsilon": 1,
                    "intervals": 2,
                    "missed": 1,
                    "error_over_theory": 1,
                }
            ],
            "left_out": 0,
        },
        "errors": [],
        "series": [point | {"p50": 0.01, "p95": 0.02, "p99": 0.03}],
        "backlog": [],
        "high_water_bytes": None,
    }


def test_of_many_problems_the_first_are_shown() -> None:
    """And how many more there are; the document has all of them."""
    few = _document() | {"problems": [f"problem {i}" for i in range(20)]}
    assert shown_problems(few) == few["problems"]
    many = _document() | {"problems": [f"problem {i}" for i in range(1_020)]}
    assert shown_problems(many) == [*few["problems"], "and 1,000 more, see --json"]


def test_the_page_needs_no_other_file_and_no_text_of_it_becomes_markup() -> None:
    """Plotly's script stands in it; hostile names are text; the data come out as they went in."""
    document = _document()
    made = page(document)
    assert len(made) > 1_000_000
    head, _, rest = made.partition('<script type="application/json" id="data">')
    data, _, scripts = rest.partition("</script>")
    assert json.loads(data) == document
    assert "alert(1)" not in re.sub(r"&lt;.*?&gt;alert\(1\)", "", head)
    assert scripts.count("</script>") == 2
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", head)
    assert "default-src 'none'" in head
    assert "Failed" in head
    assert "@@" not in head.replace("@@data@@", "")
