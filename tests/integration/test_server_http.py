"""The server as it runs: a real gunicorn over a real Valkey, spoken to over HTTP."""

import gzip
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import requests

from support.server import INGEST_KEY, OPERATOR_KEY, Server, batch, bearer, report, running_server
from support.store import Store, running_store

pytestmark = pytest.mark.usefixtures("engine")

TODAY = datetime.now(UTC).date()
UNTIL = TODAY + timedelta(days=3)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def store(engine: str) -> Iterator[Store]:
    """One Valkey for this file."""
    with running_store() as found:
        yield found


@pytest.fixture(scope="module")
def server(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One gunicorn for this file."""
    with running_server(tmp_path_factory.mktemp("server"), store.url) as found:
        yield found


def _today(data: object = 1, **changes: object) -> dict[str, object]:
    return report(data=data, window=TODAY.isoformat(), **changes)


def _batch(*reports: object, **changes: object) -> dict[str, object]:
    return batch(*(reports or (_today(),)), until=UNTIL) | changes


def _send(server: Server, body: object, **headers: str) -> requests.Response:
    sent = JSON | bearer() | {name.replace("_", "-"): value for name, value in headers.items()}
    return server.session.post(f"{server.url}/v1/reports", data=body, headers=sent, timeout=60)


def test_a_batch_goes_in_and_its_retry_is_known(server):
    """The happy path, and the same bytes again."""
    document = _batch(_today(1), _today(0), _today(9))
    answer = server.post(document)
    assert answer.status_code == 202
    assert answer.json() == {
        "accepted": 2,
        "duplicate": False,
        "rejected": [{"index": 2, "type": "payload-invalid", "detail": "data: must be in [0, 2)"}],
    }
    again = server.post(document).json()
    assert (again["accepted"], again["duplicate"], len(again["rejected"])) == (0, True, 1)


def test_gzip_and_chunks_arrive(server):
    """A compressed body, and one sent in chunks without a length, are accepted."""
    packed = gzip.compress(json.dumps(_batch()).encode())
    assert _send(server, packed, Content_Encoding="gzip").json()["accepted"] == 1
    text = json.dumps(_batch()).encode()
    assert _send(server, iter([text[:10], text[10:]])).json()["accepted"] == 1


def _endless_chunks() -> Iterator[bytes]:
    """A whole batch first, so that cutting the rest off would leave something to accept."""
    yield json.dumps(_batch()).encode()
    for _ in range(17):
        yield b" " * 65_536


BAD = {
    "wrong key": (_batch(), {"Authorization": "Bearer guess"}, 401, "unauthorized"),
    "wrong role": (_batch(), bearer(OPERATOR_KEY), 403, "forbidden"),
    "gzip bomb": (gzip.compress(bytes(1 << 28)), {"Content-Encoding": "gzip"}, 413, "body-too-large"),
    "cut gzip": (gzip.compress(b"{}")[:-1], {"Content-Encoding": "gzip"}, 400, "malformed-body"),
    "oversize": (b" " * ((1 << 20) + 1), {}, 413, "body-too-large"),
    "oversize in chunks": (_endless_chunks, {}, 413, "body-too-large"),
    "malformed JSON": (b'{"batch": ', {}, 400, "malformed-body"),
    "NaN": (json.dumps(_batch(_today(math.nan))).encode(), {}, 400, "malformed-body"),
    "deep nesting": (b'{"batch":' + b"[" * 200_000, {}, 400, "malformed-body"),
    "huge integer": (b'{"batch":' + b"9" * 100_000 + b"}", {}, 400, "malformed-body"),
    "until missing": ({k: v for k, v in _batch().items() if k != "until"}, {}, 400, "malformed-body"),
    "until past": (_batch(until=str(TODAY - timedelta(days=2))), {}, 422, "until-past"),
    "until too far": (_batch(until=str(TODAY + timedelta(days=43))), {}, 422, "until-too-far"),
    "no length at all": (None, {}, 400, "malformed-body"),
    "another type": (_batch(), {"Content-Type": "application/xml"}, 415, "unsupported-media-type"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_and_leaves_no_trace(server, store, what):
    """Each kind of bad input is one problem document, the store is as before, and the server goes on."""
    body, headers, status, slug = BAD[what]
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    before = store.dump()
    answer = _send(server, body() if callable(body) else body, **headers)
    assert (answer.status_code, answer.json()["type"]) == (status, slug)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert store.dump() == before
    server.session.close()  # a connection with an unread body is closed by the server
    assert server.post(_batch()).status_code == 202


def test_a_broken_chunk_is_a_malformed_body(server, store):
    """Chunks that are none are the sender's fault, not ours, and leave no trace."""
    before = store.dump()
    head = "POST /v1/reports HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    head += f"Content-Type: application/json\r\nAuthorization: Bearer {INGEST_KEY}\r\n\r\n"
    answer = server.raw(head.encode() + b"zz\r\n{}\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"type":"malformed-body"' in answer
    assert store.dump() == before


def test_operators_read_and_apps_do_not(server):
    """Metrics are shown to the operator key alone; the registry to everyone."""
    assert server.get("/v1/metrics").json()["project"] == "example-editor"
    assert server.get("/v1/metrics", INGEST_KEY).status_code == 403
    assert server.get("/v1/metrics", None).status_code == 401
    answer = server.get("/v1/registry", None)
    assert answer.status_code == 200
    again = server.session.get(
        server.url + "/v1/registry", headers={"If-None-Match": answer.headers["ETag"]}, timeout=60
    )
    assert (again.status_code, again.content) == (304, b"")


def test_health_needs_no_key(server):
    """Both health paths answer without a key."""
    assert server.get("/healthz", None).json() == {"status": "ok"}
    assert server.get("/readyz", None).json() == {"status": "ready"}


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02garbage secret-bytes\r\n\r\n",
        b"GET secret-bytes\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nsecret bytes: 192.0.2.7\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer ingest_test\r\n\r\nzz\r\nsecret-bytes\r\n0\r\n\r\n",
        b"GET /" + b"x" * 5_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\nX-Real-IP: 192.0.2.7\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
        b"Authorization: Bearer ingest_test\r\n\r\nsecret-bytes",
    ],
)
def test_no_address_and_no_byte_of_a_request_reaches_the_log(server, sent):
    """Requests that are not HTTP, or are cut off, leave no address and nothing of themselves in the log."""
    server.raw(sent)
    assert server.get("/healthz", None).status_code == 200
    lines = [line for line in server.log_text().splitlines() if "Listening at: " not in line]
    text = "\n".join(lines)
    assert lines
    assert "127.0.0.1" not in text
    assert "192.0.2.7" not in text
    assert "secret" not in text
    assert INGEST_KEY not in text
    assert "Traceback" not in text
