import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.serve_process import ServeProcess, alive, running_serve, wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since the store's socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        yield Path(short)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start ends what was left over")
def test_killing_serve_leaves_no_process(folder: Path) -> None:
    """SIGKILL gives it no chance; gunicorn's master and workers, estimator and store still end."""
    with running_serve(folder / "state") as serve:
        names = [" ".join(process.cmdline()) for process in serve.family]
        for part in ("valkey-server", "gunicorn", "dither_estimator.worker"):
            assert any(part in name for name in names)
        assert len(names) == 5  # with two workers of gunicorn
        serve.post(reports=4)
        serve.kill()
        serve.wait_family_gone()
    with running_serve(folder / "state") as again:
        again.post(reports=3)
        again.wait_counted(7)


def test_a_start_right_after_a_kill_waits_for_the_store_of_the_killed_one(folder: Path) -> None:
    """No second store on the same directory: the first one must be gone before."""
    with running_serve(folder / "state") as killed:
        killed.post(reports=4)
        store = psutil.Process(killed.pid("store"))
        store.suspend()  # neither the kernel's signal nor SIGTERM reaches it for now
        killed.kill()
        assert alive(store)
        serve = ServeProcess(folder / "state")
        wait_until(lambda: f"store: ending process {store.pid}" in serve.text(), "the search for leftovers")
        assert "started" not in serve.text()
        store.resume()
        with serve.kept():
            assert not alive(store)
            assert len([p for p in serve.family if "valkey-server" in p.cmdline()[0]]) == 1
            serve.wait_counted(4)


@pytest.mark.parametrize("name", ["ingest", "estimator", "store"])
def test_a_killed_child_comes_back_and_nothing_is_lost(folder: Path, name: str) -> None:
    """Reports before and after the crash are counted, each once."""
    with running_serve(folder / "state") as serve:
        serve.post(reports=6)
        serve.kill_child(name)
        serve.post(reports=5)
        serve.wait_counted(11)
        assert f"{name}: ended by signal 9; restarting in 0.5 s" in serve.text()
        serve.family = psutil.Process(serve.popen.pid).children(recursive=True)
        serve.popen.terminate()
        assert serve.wait_exit() == 0
        assert not any(map(alive, serve.family))


def test_a_killed_gunicorn_worker_is_replaced(folder: Path) -> None:
    """By gunicorn itself: the supervisor has nothing to do."""
    with running_serve(folder / "state") as serve:
        serve.post(reports=6)
        master, victim = serve.pid("ingest"), serve.gunicorn_workers()[0]
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: not alive(victim), "the end of the worker")
        wait_until(lambda: len([w for w in serve.gunicorn_workers() if alive(w)]) == 2, "another worker")
        serve.post(reports=5)
        serve.wait_counted(11)
        assert serve.pid("ingest") == master


def test_everything_killed_at_once_comes_back(folder: Path) -> None:
    """All three at the same moment: the store first, then those that need it."""
    with running_serve(folder / "state") as serve:
        serve.post(reports=3)
        before = {name: serve.pid(name) for name in ("ingest", "estimator", "store")}
        for pid in before.values():
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: all(serve.pid(name) not in (None, pid) for name, pid in before.items()), "all three"
        )
        serve.post(reports=2)
        serve.wait_counted(5)
