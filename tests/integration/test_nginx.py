"""The configurations of ``deploy/`` in a real nginx, in front of real servers of either role."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from dither_protocol.wire import MAX_BODY_BYTES
from support.dashboard import read_page
from support.http import Answer, scripted_server
from support.nginx import running_nginx
from support.serve_process import wait_until
from support.server import OPERATOR_KEY, batch, bearer, free_port, report, running_server, write_files
from support.store import running_store

CONFIGS = ("nginx.conf", "operator.conf")
PAGES = ("/", "/metrics/browser", "/privacy", "/health")


@dataclass
class _Site:
    """What each nginx is reached at, and the folder of their logs."""

    devices: str
    people: str
    folder: Path

    def log_text(self) -> str:
        """What both have said."""
        return "".join((self.folder / name / "log").read_text() for name in CONFIGS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Site]:
    """A server for devices and one for people over one store, each behind its nginx."""
    folder = tmp_path_factory.mktemp("site")
    write_files(folder)
    with (
        running_store() as store,
        running_server(folder, store.url, {"DITHER_ROLE": "ingest"}) as ingest,
        running_server(folder, store.url, {"DITHER_ROLE": "operator"}) as operator,
        running_nginx(folder / "nginx.conf", "nginx.conf", ingest.port) as devices,
        running_nginx(folder / "operator.conf", "operator.conf", operator.port) as people,
    ):
        yield _Site(devices, people, folder)


def _get(url: str, **options: object) -> requests.Response:
    return requests.get(url, allow_redirects=False, timeout=60, **options)  # type: ignore[arg-type]


def _batch() -> dict[str, object]:
    today = datetime.now(UTC).date()
    return batch(report(window=today.isoformat()), until=today + timedelta(days=3))


def test_devices_send_reports_and_see_nothing_else(site: _Site) -> None:
    """A batch and the registry pass; whatever is for people does not exist there, with any key."""
    sent = requests.post(f"{site.devices}/v1/reports", json=_batch(), headers=bearer(), timeout=60)
    assert (sent.status_code, sent.json()["accepted"]) == (202, 1)
    assert _get(f"{site.devices}/v1/registry").json()["project"] == "example-editor"
    hidden = ("/healthz", "/readyz", "/metrics", "/v1/metrics", "/v1/ledger", "/login", *PAGES)
    for path in hidden:
        assert _get(site.devices + path, headers=bearer(OPERATOR_KEY)).status_code == 404, path


def test_people_sign_in_by_the_address_and_stay_signed_in(site: _Site) -> None:
    """The cookie passes both ways, under a name with the port of nginx, and every page comes."""
    with requests.Session() as browser:
        answer = browser.get(f"{site.people}/login?token={OPERATOR_KEY}", allow_redirects=False, timeout=60)
        assert (answer.status_code, answer.headers["Location"]) == (303, "/")
        assert list(browser.cookies.keys()) == [f"dither_session_{urlsplit(site.people).port}"]
        for path in PAGES:
            answer = browser.get(site.people + path, allow_redirects=False, timeout=60)
            assert answer.status_code == 200, path
            assert browser.get(f"{site.people}/live{path}", timeout=60).json()["main"]
        script = read_page(browser.get(f"{site.people}/metrics/browser", timeout=60).text).root.every(
            "script"
        )[0]
        whole = browser.get(site.people + script.attributes["src"], timeout=60)
        assert whole.content.startswith(b"/**\n* plotly.js v"), "more than nginx keeps in its buffers"


def test_people_sign_in_and_out_by_the_forms(site: _Site) -> None:
    """The token of the form and its cookie meet at the server; without the cookie there is no session."""
    with requests.Session() as browser:
        form = read_page(browser.get(f"{site.people}/login?next=%2Fprivacy", timeout=60).text)
        fields = {
            each.attributes["name"]: each.attributes.get("value", "")
            for each in form.root.every("form")[0].every("input")
        }
        filled = fields | {"token": OPERATOR_KEY}
        assert requests.post(f"{site.people}/login", data=filled, timeout=60).status_code == 403
        page = browser.post(f"{site.people}/login", data=filled, timeout=60)
        assert (page.status_code, urlsplit(page.url).path) == (200, "/privacy")
        leave = next(
            each for each in read_page(page.text).root.every("form") if each.attributes["action"] == "/logout"
        )
        csrf = {each.attributes["name"]: each.attributes["value"] for each in leave.every("input")}
        browser.post(f"{site.people}/logout", data=csrf, timeout=60)
        assert browser.get(f"{site.people}/privacy", allow_redirects=False, timeout=60).status_code == 303


def test_people_read_the_api_and_prometheus_scrapes(site: _Site) -> None:
    """Each with its key; reports are not taken there, and the health paths stay inside."""
    for path in ("/v1/metrics", "/v1/keys", "/metrics"):
        assert _get(site.people + path, headers=bearer(OPERATOR_KEY)).status_code == 200, path
        assert _get(site.people + path).status_code == 401, path
    for path in ("/healthz", "/readyz", "/v1/registry"):
        assert _get(site.people + path).status_code == 404, path
    sent = requests.post(f"{site.people}/v1/reports", json=_batch(), headers=bearer(), timeout=60)
    assert sent.status_code == 404


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({"X-Forwarded-Proto": "https"}, True),
        ({"X-Forwarded-Proto": "http"}, False),
        ({}, False),
        ({"X-Forwarded-Proto": "gopher"}, False),
        ({"X-Forwarded-Ssl": "on", "X-Forwarded-Protocol": "ssl"}, False),
        ({"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "off"}, True),
    ],
)
def test_a_session_that_began_by_https_is_secure(site: _Site, headers: dict[str, str], secure: bool) -> None:
    """What ends TLS says so by one header; other headers about it are not passed on."""
    answer = _get(f"{site.people}/login?token={OPERATOR_KEY}", headers=headers)
    assert answer.status_code == 303
    assert ("Secure" in answer.headers["Set-Cookie"].split("; ")) is secure


@pytest.mark.parametrize("name", CONFIGS)
def test_no_address_is_passed_on(name: str, tmp_path: Path) -> None:
    """Nor what another proxy noted about it; from devices not even a cookie, from people theirs."""
    noted = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded"), "203.0.113.7")
    body = {"Cookie": "dither_session=x", "Content-Type": "application/json"}
    with (
        scripted_server(Answer()) as upstream,
        running_nginx(tmp_path / "nginx", name, urlsplit(upstream.url).port or 0) as url,
    ):
        sent = requests.post(f"{url}/v1/reports", data=b"{}", headers=noted | body, timeout=60)
        assert sent.status_code == 202
    (seen,) = upstream.headers
    names = {header.lower() for header in seen}
    assert not names & {header.lower() for header in noted}
    assert not [value for value in seen.values() if "203.0.113.7" in value]
    assert ("cookie" in names) is (name == "operator.conf")
    assert seen["Host"] == urlsplit(url).netloc


@pytest.mark.parametrize("name", CONFIGS)
def test_what_nginx_refuses_is_a_problem_of_the_api(name: str, tmp_path: Path) -> None:
    """A body over the limit, and a server that is away: devices and scripts read why, and whether to try again."""
    with running_nginx(tmp_path / "nginx", name, free_port()) as url:
        large = requests.post(f"{url}/v1/reports", data=bytes(MAX_BODY_BYTES + 1), timeout=60)
        away = requests.post(f"{url}/v1/reports", data=b"{}", timeout=60)
    assert (large.status_code, large.json()["type"]) == (413, "body-too-large")
    assert (away.status_code, away.json()["retryable"]) == (503, True)
    assert away.headers["Retry-After"] == "5"
    for answer in (large, away):
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["Server"] == "nginx", "no version"


def test_nginx_logs_nothing(site: _Site) -> None:
    """No address, no path and no key, whatever was asked."""
    for url in (site.devices, site.people):
        _get(f"{url}/login?token={OPERATOR_KEY}")
        _get(f"{url}/%00", headers={"X": "y" * 40_000})
    assert site.log_text() == ""


def test_a_new_key_opens_and_a_withdrawn_one_ends_without_a_restart(site: _Site) -> None:
    """`dither keys` puts another file in the place of the old one; the servers, which mount its folder, see it."""
    file = site.folder / "keys.json"
    before = file.stat().st_ino

    def dither(*arguments: str) -> str:
        program = str(Path(sys.executable).with_name("dither"))
        command = [program, "keys", *arguments, "--keys-file", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    key = dither("create", "newcomer", "--role", "viewer").split()[-1]
    assert file.stat().st_ino != before
    wait_until(
        lambda: _get(f"{site.people}/v1/metrics", headers=bearer(key)).status_code == 200, "key in force"
    )
    with requests.Session() as browser:
        browser.get(f"{site.people}/login?token={key}", timeout=60)
        assert browser.get(f"{site.people}/privacy", allow_redirects=False, timeout=60).status_code == 200
        dither("revoke", "newcomer", "--yes")
        wait_until(
            lambda: (
                browser.get(f"{site.people}/privacy", allow_redirects=False, timeout=60).status_code == 303
            ),
            "the session is over",
        )
