"""Which server a command asks and with which key; what is said where there is no answer."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from dither_cli.api_client import CSV, Api, ApiError
from dither_cli.api_place import find_api
from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.state_dir import StateDir
from support.http import Answer, ScriptedServer, scripted_server

LOCAL = "http://127.0.0.1:8787"
FAR = "https://dither.example.org"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state directory as `dither serve` leaves it."""
    with StateDir(tmp_path / "state").open() as state:
        state.env.write_text(f"export DITHER_ENDPOINT={LOCAL}\nexport DITHER_OPERATOR_TOKEN=of-serve\n")
    return tmp_path / "state"


def _found(
    environ: Mapping[str, str], given: Mapping[str, str], state_dir: Path | None = None
) -> tuple[str, str]:
    api = find_api(given.get("url"), given.get("key"), state_dir, environ)
    return api.url, api._key


@pytest.mark.parametrize(
    ("environ", "given", "expected"),
    [
        ({}, {}, (LOCAL, "of-serve")),
        ({}, {"key": "mine"}, (LOCAL, "mine")),
        ({"DITHER_KEY": "mine"}, {}, (LOCAL, "mine")),
        ({"DITHER_ENDPOINT": FAR, "DITHER_OPERATOR_TOKEN": "token"}, {}, (FAR, "token")),
        ({"DITHER_URL": FAR, "DITHER_KEY": "mine"}, {}, (FAR, "mine")),
        ({"DITHER_URL": LOCAL, "DITHER_ENDPOINT": LOCAL, "DITHER_KEY": "mine"}, {"url": FAR}, (FAR, "mine")),
        ({"DITHER_KEY": "mine"}, {"url": FAR, "key": "other"}, (FAR, "other")),
    ],
)
def test_options_go_first_then_variables_then_serve(
    state_dir: Path, environ: dict[str, str], given: dict[str, str], expected: tuple[str, str]
) -> None:
    """The state directory is the last that is asked."""
    assert _found({"DITHER_HOME": str(state_dir), **environ}, given) == expected


def test_a_state_directory_that_is_named_goes_before_variables(state_dir: Path) -> None:
    """What was said now goes before what the environment says."""
    environ = {"DITHER_URL": FAR, "DITHER_OPERATOR_TOKEN": "token"}
    assert _found(environ, {}, state_dir) == (LOCAL, "of-serve")


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, {"url": FAR}),
        ({"DITHER_URL": FAR}, {}),
        ({"DITHER_ENDPOINT": LOCAL, "DITHER_OPERATOR_TOKEN": "token"}, {"url": FAR}),
        ({"DITHER_ENDPOINT": FAR}, {}),
    ],
)
def test_a_key_goes_to_no_other_server(
    state_dir: Path, environ: dict[str, str], given: dict[str, str]
) -> None:
    """Neither that of a serve nor the variable that was set with another address."""
    with pytest.raises(ApiError, match="no key for https") as caught:
        _found({"DITHER_HOME": str(state_dir), **environ}, given)
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://dither.example.org", "plain http"),
        ("dither.example.org", "https URL"),
        ("https://user:pass@dither.example.org", "without user"),
    ],
)
def test_a_key_never_travels_in_the_clear(url: str, words: str) -> None:
    """Plain http is for loopback addresses."""
    with pytest.raises(ApiError, match=words) as caught:
        Api(url, "secret")
    assert caught.value.exit_code == ExitCode.USAGE
    assert "secret" not in repr(Api(FAR, "secret"))


def test_no_serve_and_no_address(tmp_path: Path) -> None:
    """It says what can be done."""
    result = CliRunner(env={"DITHER_HOME": str(tmp_path)}).invoke(cli, ["status"])
    assert (result.exit_code, "--url" in result.output) == (ExitCode.STATE_DIR, True)
    both = CliRunner().invoke(cli, ["status", "--url", FAR, "--state-dir", str(tmp_path)])
    assert (both.exit_code, "not both" in both.output) == (ExitCode.USAGE, True)


@contextmanager
def _scripted(status: int, headers: dict[str, str], body: bytes) -> Iterator[tuple[Api, ScriptedServer]]:
    with scripted_server() as script:
        script.registry = [Answer(status, body, headers)]
        yield Api(script.url, "secret"), script


_PROBLEM = {"Content-Type": "application/problem+json"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "code", "words"),
    [
        (
            503,
            _PROBLEM,
            {"title": "t", "detail": "the store is away"},
            ExitCode.SERVICE,
            "503: the store is away",
        ),
        (404, _PROBLEM, {"title": "t", "detail": "no such metric"}, ExitCode.FAILED, "^no such metric"),
        (
            400,
            _PROBLEM,
            {"title": "t", "detail": "must be", "field": "level"},
            ExitCode.USAGE,
            "^level must be",
        ),
        (401, {}, {}, ExitCode.USAGE, "does not know this key"),
        (403, {}, {}, ExitCode.USAGE, "viewer or an admin"),
        (302, {"Location": "https://example.org"}, {}, ExitCode.SERVICE, "answers 302"),
        (404, {"Content-Type": "text/html"}, None, ExitCode.SERVICE, "is it a Dither server"),
        (200, {"Content-Type": "text/html"}, None, ExitCode.SERVICE, "no Dither server"),
    ],
)
def test_answers_that_are_none(
    status: int, headers: dict[str, str], body: dict[str, str] | None, code: ExitCode, words: str
) -> None:
    """An error of the API in its own words; whatever else answers there is no Dither server."""
    raw = b"<html>" if body is None else json.dumps(body).encode()
    with _scripted(status, headers, raw) as (api, _), pytest.raises(ApiError, match=words) as caught:
        api.get("/v1/metrics")
    assert caught.value.exit_code == code
    assert "secret" not in str(caught.value)


def test_json_that_is_none() -> None:
    """A page that calls itself JSON."""
    with _scripted(200, {"Content-Type": "application/json"}, b"<html>") as (api, _):
        page = api.get("/v1/metrics")
    with pytest.raises(ApiError, match="not JSON"):
        page.document()


def test_what_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key as given, whatever netrc says; no library's name; the next page from the header Link."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    headers = {"Content-Type": CSV, "Link": '<?limit=2&cursor=abc>; rel="next"'}
    with _scripted(200, headers, "a,é\n".encode()) as (api, script):
        page = api.get("/v1/x", {"from": "2026-11-29T00:00:00Z"}, CSV)
    assert (page.text, page.next) == ("a,é\n", "abc")
    (asked,) = script.gets
    assert (asked["Authorization"], asked["User-Agent"], asked["Accept"]) == ("Bearer secret", "dither", CSV)


def test_nobody_listens() -> None:
    """A port that is closed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        api = Api(f"http://127.0.0.1:{probe.getsockname()[1]}", "secret")
    with pytest.raises(ApiError, match="does not answer") as caught:
        api.get("/v1/metrics")
    assert caught.value.exit_code == ExitCode.SERVICE
