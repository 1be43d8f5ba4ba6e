"""Who may see the dashboard, and how its answers leave: sessions, forms, headers, files, errors."""

import gzip
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from dither_server import auth
from dither_server.app import create_app
from dither_server.dashboard.headers import POLICY
from dither_server.dashboard.sessions import SESSION_S, new_cookie, read_cookie
from support.dashboard import read_page
from support.server import INGEST_KEY, OPERATOR_KEY, Clock, bearer, settings, write_files
from support.store import Store

PAGES = ("/", "/metrics/browser", "/privacy", "/health")
COOKIE = "dither_session"


def _sign_in(client: FlaskClient, **options: str) -> None:
    assert client.get(f"/login?token={OPERATOR_KEY}", **options).status_code == 303


def _cookie(client: FlaskClient) -> str:
    found = client.get_cookie(COOKIE)
    assert found is not None
    return found.value


def _form(client: FlaskClient, path: str = "/login") -> dict[str, str]:
    """The fields of the first form of a page, as it comes."""
    page = read_page(client.get(path).text)
    form = page.root.every("form")[0]
    return {each.attributes["name"]: each.attributes.get("value", "") for each in form.every("input")}


@pytest.mark.parametrize("path", PAGES)
def test_without_a_session_there_is_only_the_form(client: FlaskClient, path: str) -> None:
    """A page leads to the form and back; its live form and its CSV give nothing away."""
    answer = client.get(path)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/login")
    live = client.get("/live" + path)
    assert (live.status_code, live.json["type"]) == (401, "unauthorized")
    assert client.get("/metrics/browser/estimates.csv").status_code == 303
    assert client.get("/", headers=bearer(OPERATOR_KEY)).status_code == 303


def test_the_address_with_a_key_opens_a_session_and_is_left_at_once(client: FlaskClient) -> None:
    """The cookie is out of reach of scripts and other sites, lasts twelve hours, and holds no byte of the key."""
    answer = client.get(f"/login?token={OPERATOR_KEY}&next=%2Fmetrics%2Fbrowser%3Fvalues%3Dnorm_sub")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/metrics/browser?values=norm_sub")
    (cookie,) = answer.headers.getlist("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={SESSION_S}"} <= set(cookie.split("; "))
    assert "Secure" not in cookie.split("; ")
    assert OPERATOR_KEY not in cookie
    assert auth.key_hash(OPERATOR_KEY) not in cookie
    for path in PAGES:
        assert client.get(path).status_code == 200


def test_over_https_the_cookie_never_travels_in_the_clear(client: FlaskClient) -> None:
    """The cookie of a request that came by https is marked Secure."""
    answer = client.get(f"/login?token={OPERATOR_KEY}", base_url="https://dither.example.org")
    assert "Secure" in answer.headers["Set-Cookie"].split("; ")


@pytest.mark.parametrize(
    ("token", "status"), [("guess", 401), ("", 401), (INGEST_KEY, 403), ("x" * 600, 401)]
)
def test_another_key_opens_nothing(client: FlaskClient, token: str, status: int) -> None:
    """An unknown key, none, and one that is in every app get the form again, and no session."""
    answer = client.get("/login", query_string={"token": token})
    assert answer.status_code == status
    assert read_page(answer.text).root.one("p", role="alert").text
    assert token not in answer.text or not token
    assert client.get("/").status_code == 303


def test_the_form_signs_in(client: FlaskClient) -> None:
    """The form with the key leads to where the person wanted to go."""
    fields = _form(client, "/login?next=%2Fprivacy")
    answer = client.post("/login", data=fields | {"token": f"  {OPERATOR_KEY}\n"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/privacy")
    assert client.get("/privacy").status_code == 200


@pytest.mark.parametrize("csrf", [None, "", "guess", "kürzer"])
def test_a_form_of_another_site_signs_nobody_in(client: FlaskClient, csrf: str | None) -> None:
    """Without the token that only the page itself knows the right key is refused, with a cookie and without."""
    fields = {"token": OPERATOR_KEY} | ({} if csrf is None else {"csrf": csrf})
    assert client.post("/login", data=fields).status_code == 403
    _form(client)
    assert client.post("/login", data=fields).status_code == 403
    assert client.get("/").status_code == 303


@pytest.mark.parametrize(
    "place",
    ["https://example.org", "//example.org", "/\\example.org", "/%5cexample.org", "/logout", "/v1/metrics",
     "/privacy\r\nSet-Cookie: a=b", "/metrics/../..//example.org", "javascript:alert(1)"],
)  # fmt: skip
def test_signing_in_never_leads_away(client: FlaskClient, place: str) -> None:
    """Whatever an address asks for, the person lands on a page of the dashboard."""
    answer = client.get("/login", query_string={"token": OPERATOR_KEY, "next": place})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")


def test_signing_out_needs_the_form_of_the_session(client: FlaskClient) -> None:
    """A form of another site signs nobody out; ours does, and the cookie is gone."""
    _sign_in(client)
    assert client.post("/logout", data={"csrf": "guess"}).status_code == 403
    assert client.get("/").status_code == 200
    fields = _form(client, "/health")
    answer = client.post("/logout", data=fields)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/login")
    assert client.get_cookie(COOKIE) is None
    assert client.post("/logout", data=fields).status_code == 303


def test_a_session_ends_by_itself(client: FlaskClient, clock: Clock) -> None:
    """After twelve hours the cookie is worth nothing, whatever the browser does with it."""
    _sign_in(client)
    cookie = _cookie(client)
    clock.now += timedelta(seconds=SESSION_S - 1)
    client.set_cookie(COOKIE, cookie)
    assert client.get("/").status_code == 200
    clock.now += timedelta(seconds=1)
    client.set_cookie(COOKIE, cookie)
    assert client.get("/").status_code == 303


def test_a_session_ends_with_its_key(
    client: FlaskClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the key is out of the keys file its sessions are over; those of other keys go on."""
    monkeypatch.setattr(auth, "LOOK_INTERVAL_S", 0.0)
    _, keys_path = write_files(tmp_path)
    keys = json.loads(keys_path.read_text())["keys"]
    other = {"name": "people", "role": "operator", "sha256": auth.key_hash("another")}  # of the same name
    keys_path.write_text(json.dumps({"keys": [*keys, other]}))
    _sign_in(client)
    assert client.get("/").status_code == 200
    keys_path.write_text(json.dumps({"keys": [other]}))
    assert client.get("/").status_code == 303
    assert client.get("/login?token=another").status_code == 303
    assert client.get("/").status_code == 200


def test_any_process_knows_a_session(client: FlaskClient, store: Store, tmp_path: Path, clock: Clock) -> None:
    """What one process signed another one believes: they share the keys file and the store."""
    _sign_in(client)
    other = create_app(settings(tmp_path, store.url), clock=clock).test_client()
    other.set_cookie(COOKIE, _cookie(client))
    assert other.get("/").status_code == 200


_KEYS = (
    auth.StoredKey("people", auth.Role.ADMIN, auth.key_hash("one")),
    auth.StoredKey("grüße|\ud800", auth.Role.ADMIN, auth.key_hash("two")),
)
_SECRET = bytes(range(32))


@pytest.mark.parametrize("key", _KEYS)
def test_a_cookie_is_read_as_it_was_written(key: auth.StoredKey) -> None:
    """Any name makes a cookie that is read again, until it is over."""
    cookie = new_cookie(key, _SECRET, 1_000.0)
    assert read_cookie(cookie, _KEYS, _SECRET, 1_000.0) is not None
    assert read_cookie(cookie, _KEYS, _SECRET, 999.0 + SESSION_S) is not None
    assert read_cookie(cookie, _KEYS, _SECRET, 1_000.0 + SESSION_S) is None
    assert read_cookie(cookie, [each for each in _KEYS if each is not key], _SECRET, 1_000.0) is None
    assert read_cookie(cookie, _KEYS, bytes(32), 1_000.0) is None


def test_a_changed_cookie_is_none() -> None:
    """No other expiry, name, signature or shape goes through; the token of a form is not the signature."""
    name, expires, mac = new_cookie(_KEYS[0], _SECRET, 1_000.0).split("|")
    session = read_cookie(f"{name}|{expires}|{mac}", _KEYS, _SECRET, 1_000.0)
    assert session is not None
    assert session.csrf != mac
    for bad in (
        f"{name}|{int(expires) + 1}|{mac}",
        f"{name}|{expires}|{mac[:-1]}0" if mac[-1] != "0" else f"{name}|{expires}|{mac[:-1]}1",
        f"|{expires}|{mac}",
        f"{name}|{expires}|{session.csrf}",
        f"{name}|{expires}",
        f"{name}|-{expires}|{mac}",
        f"{name}|{expires}|{mac}\n",
        f"{name}|٣{expires}|{mac}",
        "",
        None,
        "|" * 300,
    ):
        assert read_cookie(bad, _KEYS, _SECRET, 1_000.0) is None, bad


@pytest.mark.parametrize("path", [*PAGES, "/login", "/metrics/nope", "/static/nope.js", "/health?x=1"])
def test_every_answer_is_hardened(client: FlaskClient, path: str) -> None:
    """No script but our files, no frame around a page, no address passed on, nothing kept; errors included."""
    _sign_in(client)
    headers = client.get(path).headers
    assert headers["Content-Security-Policy"] == POLICY
    assert "unsafe-inline" not in POLICY.split("script-src")[1].split(";")[0]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/metrics/nope", 404, "knows a metric of this name"),
        ("/metrics/x:1", 404, "knows a metric of this name"),
        ("/metrics/browser?window=tomorrow", 400, "must be a window such as"),
        ("/metrics/browser?window=2026-02-30", 400, "must be a window such as"),
        ("/metrics/browser?values=clipped", 400, "must be one of raw, norm_sub"),
        ("/metrics/browser?order=random", 400, "must be one of"),
        ("/metrics/browser?dimensions=linux", 400, "must be such as os=linux"),
        ("/metrics/browser?over=7&dimensions=os%3Dlinux", 400, "over all dimensions only"),
        ("/metrics/browser?level=1", 400, "must be a number between 0.5 and 1"),
        ("/metrics/browser?level=0.99x", 400, "must be a number between 0.5 and 1"),
        ("/metrics/browser?simultaneous=1", 400, "must be true or false"),
        ("/metrics/browser?colour=red", 400, "is not a parameter here"),
        ("/?window=2026-11-29", 400, "takes no parameters"),
    ],
)
def test_a_bad_address_says_what_is_wrong(client: FlaskClient, path: str, status: int, says: str) -> None:
    """An unknown metric and a choice that there is not are an error page; for the script the same as a problem."""
    _sign_in(client)
    answer = client.get(path)
    assert answer.status_code == status
    assert says in read_page(answer.text).root.one("main").text
    live = client.get("/live" + path)
    assert (live.status_code, live.mimetype) == (status, "application/problem+json")
    assert says in live.json["detail"]


def test_hostile_queries_are_not_repeated(client: FlaskClient) -> None:
    """Whatever stands in an address, the page is whole, and has no element of its."""
    _sign_in(client)
    hostile = '"><script>alert(1)</script>'
    for name in ("window", "dimensions", "values", "level", "simultaneous", hostile):
        answer = client.get("/metrics/browser", query_string={name: hostile})
        assert answer.status_code == 400
        assert "alert" not in answer.text
    found = client.get("/metrics/browser", query_string={"dimensions": f"os={hostile}"})
    assert found.status_code == 200
    assert not [s for s in read_page(found.text).root.every("script") if "src" not in s.attributes]


def test_without_the_store_pages_say_so(client: FlaskClient, store: Store) -> None:
    """An overview without its store is a 503 that says so; the health page still comes, and names what fails."""
    _sign_in(client)
    store.stop()
    try:
        answer = client.get("/metrics/browser")
        assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
        assert "store cannot be read" in read_page(answer.text).root.one("h1").text
        assert client.get("/live/metrics/browser").json["type"] == "store-unavailable"
        health = read_page(client.get("/health").text).root
        assert "cannot be read" in health.one("p", role="alert").text
        assert "fails the store takes writes" in health.one("section", id="checks").text
        assert client.get("/privacy").status_code == 200
    finally:
        store.start()


def test_files_may_be_kept_for_ever_at_their_own_address(client: FlaskClient) -> None:
    """The address in a page changes with the content; the bare one is asked for again. Both packed and plain."""
    page = read_page(client.get("/login").text).root
    style = page.every("link", rel="stylesheet")[0].attributes["href"]
    plain, packed = client.get(style), client.get(style, headers={"Accept-Encoding": "gzip"})
    assert plain.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert plain.mimetype == "text/css"
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert client.get("/static/dashboard.css").headers["Cache-Control"] == "no-cache"
    tag = {"If-None-Match": plain.headers["ETag"]}
    assert client.get("/static/dashboard.css", headers=tag).status_code == 304
    for path in ("/static/../auth.py", "/static/%2e%2e%2fauth.py", "/static/dashboard/x", "/static/"):
        assert client.get(path).status_code == 404


def test_plotly_is_served_and_never_imported(client: FlaskClient) -> None:
    """The script comes from the installed package, which no server process imports."""
    _sign_in(client)
    page = read_page(client.get("/metrics/browser").text).root
    addresses = [script.attributes["src"] for script in page.every("script")]
    assert [address.partition("?")[0] for address in addresses] == [
        "/static/plotly.min.js",
        "/static/charts.js",
        "/static/dashboard.js",
    ]
    assert client.get(addresses[0]).data.startswith(b"/**\n* plotly.js v")
    check = (
        "import sys, dither_server.app; from dither_server.dashboard.assets import load_assets; load_assets();"
        "print('plotly' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("role", "told"), [("all", "http://localhost"), ("operator", "https://devices.example.org")]
)
def test_an_app_is_told_where_reports_are_taken(store: Store, tmp_path: Path, role: str, told: str) -> None:
    """The side for people takes none, so its own address is not the one to send to; it is the one to read from."""
    client = create_app(settings(tmp_path, store.url, role=role)).test_client()
    _sign_in(client)
    lines = read_page(client.get("/").text).root.one("section", id="empty").text
    assert f'with Client("{told}"' in lines
    assert "http://localhost/v1/metrics/" in lines
