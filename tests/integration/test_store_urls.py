"""What ``DITHER_STORE_URL`` leads to, for server and worker alike: sockets, TCP, TLS, clusters over TLS, nonsense."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_estimator.store import Store as WorkerStore
from dither_estimator.store import StoreUnavailableError
from dither_estimator.worker import EXIT_CONFIG
from dither_protocol.store_url import StoreUrlError
from dither_server.app import create_app
from dither_server.settings import ConfigurationError
from support.cluster import free_ports, running_cluster
from support.server import Clock, batch, bearer, settings
from support.store import ENGINES, Engine, engine_binary, running_store
from support.tls import Certificates, make_certificates

PASSWORD = "hunter2"


def _works(folder: Path, url: str) -> None:
    """A server creates the store and takes a batch; a worker finds it."""
    app = create_app(settings(folder, url), clock=Clock()).test_client()
    answer = app.post("/v1/reports", json=batch(), headers=bearer())
    assert (answer.status_code, answer.get_json()["accepted"]) == (202, 1)
    store = WorkerStore(url)
    assert store.open() == 8
    assert sum(len(store.entries(partition, b"", 10)) for partition in range(8)) == 1
    store.close()


@pytest.mark.parametrize("scheme", ["redis", "unix"])
def test_the_account_and_the_options_of_a_url_are_used(tmp_path: Path, scheme: str) -> None:
    """Over TCP and over a socket: user, password, and an option of the client's."""
    (port,) = free_ports(1)
    with running_store(port=str(port)) as store:
        with store.client() as client:
            client.execute_command("ACL SETUSER", "dither", "on", f">{PASSWORD}", "~*", "+@all")
        place = f"{store.folder}/s.sock" if scheme == "unix" else f"127.0.0.1:{port}"
        url = f"{scheme}://dither:{PASSWORD}@{place}?client_name=of-dither"
        _works(tmp_path, url)
        wrong = url.replace(PASSWORD, "hunter3")
        with pytest.raises(ConfigurationError, match="does not accept the password"):
            create_app(settings(tmp_path, wrong))
        with pytest.raises(StoreUnavailableError):
            WorkerStore(wrong).open()


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Certificates]:
    """Certificates, and an engine that can use them."""
    found = make_certificates(tmp_path)
    for name in filter(engine_binary, ENGINES):
        monkeypatch.setattr(Engine, "name", name)
        if _speaks_tls(found):
            yield found
            return
    pytest.skip("no engine on this machine was built with TLS")


def _speaks_tls(certificates: Certificates) -> bool:
    try:
        with running_store(**_tls_settings(certificates, free_ports(1)[0])):
            return True
    except RuntimeError:  # it says so at its start, and ends
        return False


def _tls_settings(certificates: Certificates, port: int) -> dict[str, str]:
    options = certificates.server_options() | {"tls-port": str(port)}
    return {name.replace("-", "_"): value for name, value in options.items()}


def test_a_store_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    """``rediss://`` works with the authority of the store's certificate, and with no other and none."""
    (port,) = free_ports(1)
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    with running_store(**_tls_settings(certificates, port)):
        _works(tmp_path, f"rediss://127.0.0.1:{port}?{certificates.url_options}")
        for url in (
            f"rediss://127.0.0.1:{port}",
            f"rediss://127.0.0.1:{port}?{other.url_options}",
            f"redis://127.0.0.1:{port}",
        ):
            app = create_app(settings(tmp_path, url), clock=Clock()).test_client()
            assert app.post("/v1/reports", json=batch(), headers=bearer()).status_code == 503
            with pytest.raises(StoreUnavailableError):
                WorkerStore(url).open()


def test_a_cluster_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    """``clusters://`` works where every node speaks TLS alone, and ``cluster://`` does not."""
    with running_cluster(certificates=certificates) as cluster:
        _works(tmp_path, cluster.url)
        plain = cluster.url.replace("clusters://", "cluster://").partition("?")[0]
        app = create_app(settings(tmp_path, plain), clock=Clock()).test_client()
        assert app.post("/v1/reports", json=batch(), headers=bearer()).status_code == 503
        with pytest.raises(StoreUnavailableError):
            WorkerStore(plain).open()


@pytest.mark.parametrize(
    "url",
    [
        f"cluster://u:{PASSWORD}@h:1,h:x",
        f"cluster://u:{PASSWORD}@h/1",
        f"cluster://u:{PASSWORD}@h,v:{PASSWORD}@g",
        f"redis://h?socket_timeout={PASSWORD}",
        f"redis://h?no_such_option={PASSWORD}",
        f"clusters://h?ssl_cert_reqs={PASSWORD}",
        "clusters://h?ssl_min_version=771",
        "rediss-cluster://h",
    ],
)
def test_a_bad_url_is_said_to_be_one_and_not_shown(tmp_path: Path, url: str) -> None:
    """Server and worker refuse it at their start, by the name of the variable, without its text."""
    with pytest.raises(StoreUrlError) as worker:
        WorkerStore(url)
    with pytest.raises(ConfigurationError) as server:
        create_app(settings(tmp_path, url))
    for caught in (worker, server):
        assert PASSWORD not in str(caught.value)


def test_the_worker_ends_with_one_sentence_about_a_bad_url() -> None:
    """The process tells its supervisor that a restart will not help, and shows nothing of the URL."""
    environ = {"DITHER_STORE_URL": f"cluster://:{PASSWORD}@", "PATH": ""}
    command = [sys.executable, "-m", "dither_estimator.worker"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == EXIT_CONFIG
    assert ended.stderr.count("\n") == 1
    assert "DITHER_STORE_URL is not the URL of a store" in ended.stderr
    assert PASSWORD not in ended.stderr
