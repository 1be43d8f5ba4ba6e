import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dither_cli import service
from dither_cli.errors import NotReadyError
from dither_cli.exit_codes import ExitCode
from dither_cli.service import Service
from dither_cli.state_dir import StateDir
from support.serve_process import REGISTRY, ServeProcess, running_serve, wait_until
from support.store import running_store


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since the store's socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        yield Path(short)


def test_a_stop_during_the_start_leaves_nothing(folder: Path) -> None:
    """SIGTERM before it is ready is a stop like any other."""
    serve = ServeProcess(folder / "state")
    wait_until(lambda: "ingest: started" in serve.text(), "the start")
    family = psutil.Process(serve.popen.pid).children(recursive=True)
    serve.popen.terminate()
    assert serve.wait_exit() == ExitCode.OK
    assert "store: stopped" in serve.text()
    assert "Ctrl-C stops it" not in serve.text()
    assert not any(process.is_running() for process in family)


def test_a_server_that_is_configured_wrongly_ends_the_start_with_its_own_words(folder: Path) -> None:
    """After a few tries: exit code, the last lines of its log, and nothing left running."""
    serve = ServeProcess(folder / "state", environ={"DITHER_ACK": "perhaps"})
    assert serve.wait_exit() == ExitCode.SERVICE
    assert "dither serve: ingest failed 4 times at its start (it exited with code" in serve.text()
    assert "DITHER_ACK: must be one of fsync, memory" in serve.text().rpartition("dither serve:")[2]
    assert "store: stopped" in serve.text()
    assert (folder / "state" / "processes.json").read_text().strip() == "[]"
    StateDir(folder / "state").open().close()


def test_an_external_store_is_used_and_left_alone(folder: Path) -> None:
    """With --store-url no store is started, and none is stopped."""
    with running_store() as store:
        with running_serve(folder / "state", "--store-url", store.url) as serve:
            assert serve.pid("store") is None
            assert not any("valkey" in process.name() for process in serve.family)
            serve.post(reports=3)
            serve.wait_counted(3)
        os.kill(store.pid, 0)
        with store.client() as client:
            assert client.ping()


def test_a_service_that_stays_unready_is_stopped_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything runs, but the external store does not answer: say so and stop."""
    monkeypatch.setattr(service, "READY_LIMIT_S", 0.5)
    registry = folder / "registry.toml"
    registry.write_text(REGISTRY)
    before = psutil.Process().children()  # a store of other tests may be among them
    with pytest.raises(NotReadyError, match=r"not ready after 0\.5 s: answers 503: .*\(.+\)"):
        Service.start(
            registry, state_dir=folder / "state", store_url=f"unix://{folder}/nobody.sock", workers=1
        )
    assert psutil.Process().children() == before
    StateDir(folder / "state").open().close()
