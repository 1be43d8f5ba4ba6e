"""The transport: every answer and every failure is one of three outcomes."""

import socket

import pytest

from dither_client.transport import (
    Delivered,
    HttpTransport,
    Outcome,
    Refused,
    Retry,
    TooLarge,
    check_endpoint,
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
        (Answer(body=b""), Retry("answer:not-a-receipt")),
        (Answer(body=b"<html>welcome to the hotel network</html>"), Retry("answer:not-a-receipt")),
        (Answer(body=b'{"accepted":"2","duplicate":false,"rejected":[]}'), Retry("answer:not-a-receipt")),
        (Answer(body=b"[" * 100_000), Retry("answer:not-a-receipt")),
        (Answer(status=503, headers={"Retry-After": "7"}), Retry("http:503", 7.0)),
        (Answer(status=429, headers={"Retry-After": "999999"}), Retry("http:429", 3600.0)),
        (Answer(status=503, headers={"Retry-After": "-5"}), Retry("http:503", None)),
        (Answer(status=503, headers={"Retry-After": "NaN"}), Retry("http:503", None)),
        (Answer(status=500), Retry("http:500", None)),
        (Answer(status=401), Refused("http:401")),
        (Answer(status=400), Refused("http:400")),
        (Answer(status=413), TooLarge()),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:9/"}), Retry("http:302")),
        (Answer(status=200), Retry("http:200")),
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
