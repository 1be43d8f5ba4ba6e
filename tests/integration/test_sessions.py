"""Sessions of the dashboard over several servers: one store, one secret, and an end when somebody ends them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from dither_protocol.storage import SESSIONS_KEY
from support.cluster import Cluster, running_cluster
from support.serve_process import wait_until
from support.server import OPERATOR_KEY, Server, running_server
from support.store import Store, running_store

_ASKED = 8
"""So often a page is asked for, so that each process of a server answers."""


@contextmanager
def _running(folder: Path, store: Store | Cluster, processes: int = 2) -> Iterator[Server]:
    folder.mkdir()
    environ = {"DITHER_ROLE": "operator", "DITHER_WORKERS": str(processes)}
    with running_server(folder, store.url, environ) as server:
        yield server


def _sign_in(server: Server) -> str:
    """The value of the cookie. Its name has the server's port."""
    answer = requests.get(f"{server.url}/login?token={OPERATOR_KEY}", allow_redirects=False, timeout=60)
    assert answer.status_code == 303
    return answer.cookies[f"dither_session_{server.port}"]


def _statuses(server: Server, cookie: str) -> set[int]:
    cookies = {f"dither_session_{server.port}": cookie}
    return {
        requests.get(f"{server.url}/privacy", cookies=cookies, allow_redirects=False, timeout=60).status_code
        for _ in range(_ASKED)
    }


def test_servers_believe_each_other_until_a_session_is_ended(tmp_path: Path) -> None:
    """With the key, or with the secret of the store: within a second, on all of them, and without a restart."""
    with (
        running_store() as store,
        _running(tmp_path / "a", store) as first,
        _running(tmp_path / "b", store) as second,
    ):
        cookie = _sign_in(first)
        assert _statuses(first, cookie) == _statuses(second, cookie) == {200}

        with store.client() as client:
            client.delete(SESSIONS_KEY)
        wait_until(
            lambda: _statuses(first, cookie) == _statuses(second, cookie) == {303}, "sessions are over"
        )
        fresh = _sign_in(second)
        wait_until(
            lambda: _statuses(first, fresh) == _statuses(second, fresh) == {200}, "all have the new one"
        )

        keys = tmp_path / "b" / "keys.json"
        entries = json.loads(keys.read_text())["keys"]
        keys.write_text(json.dumps({"keys": [each for each in entries if each["role"] == "ingest"]}))
        wait_until(lambda: _statuses(second, fresh) == {303}, "the key is withdrawn")
        assert _statuses(first, fresh) == {200}, "its keys file still has the key"


def test_a_server_that_started_without_its_store_finds_the_sessions(tmp_path: Path) -> None:
    """Meanwhile a page is 503. Where the store has lost everything the sessions are over, and people sign in again."""
    with running_store() as store:
        with _running(tmp_path / "a", store, processes=1) as server:
            cookie = _sign_in(server)
            store.kill()
            assert _statuses(server, cookie) == {200}, "it has read the secret"
        with _running(tmp_path / "b", store) as late:
            assert _statuses(late, cookie) == {503}
            store.start()
            assert _statuses(late, cookie) == {200}
            with store.client() as client:
                client.flushall()
            wait_until(lambda: _statuses(late, cookie) == {303}, "the store is another one")
            fresh = _sign_in(late)
            wait_until(lambda: _statuses(late, fresh) == {200}, "both processes have the new one")


def test_a_cluster_keeps_the_secret(tmp_path: Path) -> None:
    """Servers agree; while its master is away those that have read it go on, and one that starts then recovers."""
    with running_cluster() as cluster, _running(tmp_path / "a", cluster, processes=1) as first:
        cookie = _sign_in(first)
        with _running(tmp_path / "b", cluster, processes=1) as second:
            master = cluster.node_of(SESSIONS_KEY)
            master.kill()
            assert _statuses(first, cookie) == _statuses(second, cookie) == {200}
            with _running(tmp_path / "c", cluster, processes=1) as late:
                assert _statuses(late, cookie) == {503}
                master.start()
                wait_until(lambda: _statuses(late, cookie) == {200}, "the master is back")
            assert _statuses(first, cookie) == _statuses(second, cookie) == {200}
