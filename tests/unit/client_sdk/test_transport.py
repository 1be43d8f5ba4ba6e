"""The transport: every answer and every failure is one of a few outcomes."""

import socket

import pytest

from dither_client import transport as transport_module
from dither_client.transport import (
    Delivered,
    Fetched,
    HttpTransport,
    Outcome,
    Refused,
    Retry,
    TooLarge,
    check_endpoint,
    entity_tag,
    retry_after_s,
)
from support.http import Answer, scripted_server


def _send(url: str) -> Outcome:
    transport = HttpTransport(url, "dik_test")
    try:
        return transport.send(b"{}")
    finally:
        transport.close()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(body=b'{"accepted":2,"duplicate":false,"rejected":[{}]}'), Delivered(2, False, 1)),
        (Answer(body=b'{"accepted":0,"duplicate":true,"rejected":[]}'), Delivered(0, True, 0)),
        (Answer(body=b""), Retry("answer:not-a-receipt", answered=False)),
        (
            Answer(body=b"<html>welcome to the hotel network</html>"),
            Retry("answer:not-a-receipt", answered=False),
        ),
        (
            Answer(body=b'{"accepted":"2","duplicate":false,"rejected":[]}'),
            Retry("answer:not-a-receipt", answered=False),
        ),
        (Answer(body=b"[" * 100_000), Retry("answer:not-a-receipt", answered=False)),
        (Answer(status=503, headers={"Retry-After": "7"}), Retry("http:503", 7.0, answered=False)),
        (Answer(status=429, headers={"Retry-After": "999999"}), Retry("http:429", 3600.0)),
        (Answer(status=503, headers={"Retry-After": "-5"}), Retry("http:503", None, answered=False)),
        (Answer(status=503, headers={"Retry-After": "NaN"}), Retry("http:503", None, answered=False)),
        (Answer(status=500), Retry("http:500", None, answered=False)),
        (Answer(status=401), Refused("http:401")),
        (Answer(status=400), Refused("http:400")),
        (Answer(status=413), TooLarge()),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:9/"}), Retry("http:302", answered=False)),
        (Answer(status=200), Retry("http:200", answered=False)),
    ],
    ids=lambda value: str(value)[:60],
)
def test_each_answer_has_its_outcome(answer: Answer, outcome: Outcome) -> None:
    """A receipt, a reason to come back later, or a reason never to try these bytes again."""
    with scripted_server(answer) as server:
        assert _send(server.url) == outcome


def test_a_connection_closed_without_a_word_is_retried() -> None:
    """A lost response says nothing about the batch."""
    with scripted_server(Answer(status=0)) as server:
        outcome = _send(server.url)
    assert isinstance(outcome, Retry)
    assert outcome.reason.startswith("network:")


def test_an_answer_that_ends_too_early_is_retried() -> None:
    """Half a receipt is none."""
    with scripted_server(Answer(body=b'{"accepted":1,', headers={"Content-Length": "500"})) as server:
        assert isinstance(_send(server.url), Retry)


def test_nobody_listening_is_retried() -> None:
    """A refused connection is network trouble, not an error of the app."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outcome = _send(f"http://127.0.0.1:{port}")
    assert outcome == Retry("network:ConnectionError", answered=False)


def test_the_request_carries_the_key_and_nothing_that_tells_devices_apart(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No library version, no cookie; a ~/.netrc does not replace the key (invariant P5)."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")  # type: ignore[operator]
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))  # type: ignore[operator]
    with scripted_server() as server:
        _send(server.url)
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers.pop("host").startswith("127.0.0.1")
    assert headers == {
        "user-agent": "dither",
        "content-type": "application/json",
        "authorization": "Bearer dik_test",
        "content-length": "2",
        "accept-encoding": "identity",
    }


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://example.org",
        "http://10.0.0.1",
        "ftp://localhost",
        "example.org",
        "https://",
        "https://a:b@c",
        "https://a?b",
    ],
)
def test_an_endpoint_that_is_not_safe_is_refused(endpoint: str) -> None:
    """Plain http is for loopback addresses only."""
    with pytest.raises(ValueError, match=r"endpoint|https"):
        check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://example.org",
        "http://localhost:8787/",
        "http://127.0.0.1",
        "http://[::1]:80",
        "http://127.9.9.9",
    ],
)
def test_a_safe_endpoint_is_taken(endpoint: str) -> None:
    """Anywhere by https, by http on this machine; a trailing slash does not matter."""
    assert check_endpoint(endpoint) == endpoint.rstrip("/")


NOW = 1_795_953_600.0  # Sun, 29 Nov 2026 12:00:00 GMT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("3600", 3600.0),
        ("3601", 3600.0),
        ("9" * 5_000, 3600.0),
        ("-1", None),
        ("1.5", None),
        ("NaN", None),
        ("inf", None),
        ("1e3", None),
        ("\u0663", None),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 11:59:30 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Mon, 30 Nov 2026 12:00:00 GMT", 3600.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Sun, 29 Nov 2026 12:00:30 +0100", None),
        ("Sun, 99 Nov 2026 12:00:30 GMT", None),
        ("Sun, 29 Nov 99999 12:00:30 GMT", None),
        ("GMT", None),
        ("tomorrow GMT", None),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_retry_after_is_read_in_both_forms_and_clamped(header: str | None, seconds: float | None) -> None:
    """Whole seconds or a date, from nothing to an hour; anything else says nothing."""
    assert retry_after_s(header, NOW) == seconds


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the read timeout, with the batch in doubt."""
    monkeypatch.setattr(transport_module, "READ_TIMEOUT_S", 0.2)
    with scripted_server(Answer(silent=True)) as server:
        assert _send(server.url) == Retry("network:ReadTimeout", answered=False)


def test_a_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the whole does not: the sender is not held for ever."""
    monkeypatch.setattr(transport_module, "ANSWER_LIMIT_S", 0.2)
    with scripted_server(Answer(body=b" " * 100_000, drip_s=0.02)) as server:
        assert _send(server.url) == Retry("network:OSError", answered=False)


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the largest receipt there could be is read."""
    monkeypatch.setattr(transport_module, "_MAX_RECEIPT_BYTES", 1_000)
    with scripted_server(Answer(body=b"x" * 200_000)) as server:
        assert _send(server.url) == Retry("network:OSError", answered=False)


def test_an_answer_in_chunks_is_a_receipt_too() -> None:
    """As a proxy may send it on."""
    body = b'10\r\n{"accepted":1,"d\r\n1e\r\nuplicate":false,"rejected":[]}\r\n0\r\n\r\n'
    answer = Answer(body=body, headers={"Transfer-Encoding": "chunked"})
    with scripted_server(answer, keep_alive=True) as server:
        assert _send(server.url) == Delivered(1, False, 0)


def test_a_reset_connection_a_wrong_certificate_and_an_unknown_name_are_retried() -> None:
    """None of them is an answer."""
    with scripted_server(Answer(reset=True)) as server:
        assert _send(server.url) == Retry("network:ConnectionError", answered=False)
        port = server.url.rsplit(":", 1)[1]
        assert _send(f"https://127.0.0.1:{port}") == Retry("network:SSLError", answered=False)
    assert _send("https://dither.invalid") == Retry("network:ConnectionError", answered=False)


def test_a_redirect_is_not_followed() -> None:
    """Neither reports nor the key go where the endpoint does not stand."""
    with scripted_server() as other:
        for status in (301, 302, 303, 307, 308):
            with scripted_server(Answer(status, b"", {"Location": other.url + "/v1/reports"})) as server:
                assert _send(server.url) == Retry(f"http:{status}", answered=False)
    assert other.bodies == []
    assert other.gets == []


def test_connections_are_shared_unless_each_request_shall_have_its_own() -> None:
    """Counted by what the server accepts."""
    for fresh, connections in ((False, 1), (True, 5)):
        with scripted_server(keep_alive=True) as server:
            transport = HttpTransport(server.url, "dik_test", fresh_connections=fresh)
            for _ in range(5):
                transport.send(b"{}")
            transport.close()
            transport.close()
        assert server.connections == connections


def test_after_a_fork_the_parents_connections_are_left_alone() -> None:
    """The child opens its own; the parent's session is neither used nor closed."""
    with scripted_server(keep_alive=True) as server:
        transport = HttpTransport(server.url, "dik_test")
        transport.send(b"{}")
        parents = transport._session
        transport.after_fork()
        transport.send(b"{}")
        assert transport._session is not parents
        assert server.connections == 2
        assert parents is not None
        parents.close()
        transport.close()


OWN_TAG = entity_tag(b'{"a":1}')


@pytest.mark.parametrize(
    ("answer", "etag", "fetched"),
    [
        (Answer(200, b'{"a":1}', {"ETag": OWN_TAG}), "", Fetched({"a": 1}, OWN_TAG)),
        (Answer(200, b'{"a":1}', {"ETag": "W/" + OWN_TAG}), "", Fetched({"a": 1}, "W/" + OWN_TAG)),
        (Answer(200, b'{"a":1}', {"ETag": '"device 7"'}), "", Fetched({"a": 1}, "")),
        (Answer(200, b'{"a":1} ', {"ETag": OWN_TAG}), "", Fetched({"a": 1}, "")),
        (Answer(200, b'{"a":1}'), '"old"', Fetched({"a": 1}, "")),
        (Answer(304, b""), '"x"', Fetched(None, '"x"')),
        (Answer(304, b""), "", None),
        (Answer(200, b"<html>"), "", None),
        (Answer(200, b""), "", None),
        (Answer(200, b"null"), "", None),
        (Answer(202, b'{"a":1}'), "", None),
        (Answer(302, b"", {"Location": "http://127.0.0.1:9/"}), "", None),
        (Answer(401, b""), "", None),
        (Answer(404, b""), "", None),
        (Answer(503, b""), "", None),
        (Answer(status=0), "", None),
        (Answer(reset=True), "", None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_registry_is_had_or_not(answer: Answer, etag: str, fetched: Fetched | None) -> None:
    """A document, the word that it has not changed, or nothing; no tag but the bytes' own is sent back (P5)."""
    with scripted_server() as server:
        server.registry = [answer]
        transport = HttpTransport(server.url, "dik_test")
        assert transport.fetch_registry(etag) == fetched
        transport.close()
    (headers,) = server.gets
    sent = {name.lower(): value for name, value in headers.items()}
    assert sent.pop("host").startswith("127.0.0.1")
    assert sent.pop("if-none-match", "") == etag
    assert sent == {"user-agent": "dither", "authorization": "Bearer dik_test", "accept-encoding": "identity"}


def test_a_registry_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the largest that there could be is read."""
    monkeypatch.setattr(transport_module, "_MAX_REGISTRY_BYTES", 1_000)
    with scripted_server() as server:
        server.registry = [Answer(200, b" " * 200_000)]
        transport = HttpTransport(server.url, "dik_test")
        assert transport.fetch_registry("") is None
        transport.close()
