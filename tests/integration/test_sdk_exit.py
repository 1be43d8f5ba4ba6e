"""How a program that uses the SDK ends: in time, silently, and without losing what it may not lose.

The deadline is 2 s for the process (`exit_timeout_s`). Times are not tested here: a limit ten times larger is, and
what `make bench` measures is compared with the target.
"""

import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from dither_client import RecordStatus
from dither_client.sender import Sender
from support.sdk_app import ask, make_client
from support.sdk_programs import LAST_WORD, Program, charged, deliver_rest, left, newer_interpreters, run
from support.sdk_server import CountingServer, counting_server

EXIT_LIMIT_S = 25.0  # ten times the deadline and a half second

NEWER = newer_interpreters()
INTERPRETERS = [sys.executable, *NEWER]
ANY_PYTHON = pytest.mark.parametrize(
    "interpreter", INTERPRETERS, ids=["this", *(path.removesuffix("/bin/python")[-7:] for path in NEWER)]
)
ON_DISK = pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "memory"])


def _state(tmp_path: Path, on_disk: bool = True) -> Path | None:
    return tmp_path / "state" if on_disk else None


def _numbers(server: CountingServer) -> dict[int, int]:
    return dict(server.snapshot())


FIVE = f"""
client = make_client()
for number in range(5):
    assert ask(client, number).status == "queued"
{LAST_WORD}
"""


def test_the_exits_are_tried_with_a_python_that_refuses_threads_then() -> None:
    """The tests below also run with Python 3.12 or newer; where there is none, its refusal is only simulated."""
    if not NEWER:
        pytest.skip("this machine has no Python 3.12 or newer, and the package registries have none")


PATIENT = "from dither_client import transport; transport.READ_TIMEOUT_S = 100\n"
"""So that it is the deadline of the exit that ends the wait, and not the transport's own limit."""


@ANY_PYTHON
def test_a_server_that_does_not_answer_does_not_hold_the_exit(tmp_path: Path, interpreter: str) -> None:
    """Silence or a byte a second: the process ends by itself, and what is on disk leaves in the next run."""
    with ExitStack() as stack:
        tried = []
        for mode, on_disk in product(
            ("silent", "drip"), (True, False)
        ):  # side by side: each waits for its deadline
            server = stack.enter_context(counting_server(mode=mode))
            state = tmp_path / mode if on_disk else None
            tried.append(
                (server, state, Program(PATIENT + FIVE, server.url, state, interpreter=[interpreter]))
            )
        for _, _, program in tried:
            finished = program.finish()
            assert (finished.status, finished.err) == (0, "")
            assert finished.exit_s < EXIT_LIMIT_S
        for server, state, _ in tried:
            assert server.arrivals == 1
            assert not server.counted
            if state is not None:
                assert left(state) == 5
                server.mode = "good"
                deliver_rest(server.url, state)
                assert _numbers(server) == dict.fromkeys(range(5), 1)


@ANY_PYTHON
@ON_DISK
def test_an_exit_delivers_what_is_due(tmp_path: Path, interpreter: str, on_disk: bool) -> None:
    """A program that records and ends at once has sent its answers when it is gone."""
    with counting_server() as server:
        finished = run(FIVE, server.url, _state(tmp_path, on_disk), interpreter=[interpreter])
        assert (finished.status, finished.err) == (0, "")
        assert _numbers(server) == dict.fromkeys(range(5), 1)


def test_an_exit_does_not_wait_for_what_is_not_due(tmp_path: Path) -> None:
    """With a state on disk a random time that has not come is not hurried: the report stays for a later run."""
    code = FIVE.replace("make_client()", "make_client(delay_s=3600)")
    with counting_server() as server:
        finished = run(code, server.url, tmp_path / "state")
        assert (finished.status, finished.err) == (0, "")
        assert server.arrivals == 0
        assert left(tmp_path / "state") == 5
        deliver_rest(server.url, tmp_path / "state")
        assert _numbers(server) == dict.fromkeys(range(5), 1)


def test_an_exit_in_memory_flushes_what_is_not_due() -> None:
    """Without a state directory nothing keeps, so the exit sends what has not reached its random time."""
    with counting_server() as server:
        finished = run(FIVE.replace("make_client()", "make_client(delay_s=3600)"), server.url)
        assert (finished.status, finished.err) == (0, "")
        assert _numbers(server) == dict.fromkeys(range(5), 1)


def test_an_exit_does_not_wait_for_the_back_off(tmp_path: Path) -> None:
    """While a failure is waited out the exit is free, and the next run goes on waiting before it delivers."""
    code = """
    from dither_client import backoff
    backoff.backoff_s = lambda failures: 600.0
    client = make_client(exit_timeout_s=300)
    for number in range(5):
        ask(client, number)
    client.flush(20)
    """
    with counting_server(mode="refuse") as server:
        finished = run(code + LAST_WORD, server.url, tmp_path / "state")
        assert (finished.status, finished.err) == (0, "")
        assert finished.exit_s < EXIT_LIMIT_S
        arrivals = server.arrivals
        server.mode = "good"
        assert run(FIVE.replace('== "queued"', ""), server.url, tmp_path / "state").status == 0
        assert server.arrivals == arrivals
        assert left(tmp_path / "state") == 5


WAYS_OUT = {
    "an unhandled exception": ("raise LookupError('of the app')", 1, "LookupError: of the app"),
    "sys.exit": ("sys.exit(7)", 7, ""),
    "sys.exit in a thread": ("t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", 0, ""),
    "a thread that goes on recording": (
        "threading.Thread(target=lambda: (time.sleep(0.3), ask(client, 5))).start()", 0, "",
    ),
    "KeyboardInterrupt": ("signal.raise_signal(signal.SIGINT)", 1, "KeyboardInterrupt"),
    "an exit handler that records": ("import atexit; atexit.register(ask, client, 5)", 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS_OUT)
@ANY_PYTHON
@ON_DISK
def test_every_way_out_through_the_interpreter_delivers(
    tmp_path: Path, interpreter: str, way: str, on_disk: bool
) -> None:
    """However the interpreter comes to its end, what was recorded arrives, and only the app's own words are said."""
    line, status, word = WAYS_OUT[way]
    state = _state(tmp_path, on_disk)
    code = FIVE.replace(LAST_WORD, line)
    with counting_server() as server:
        finished = run(code, server.url, state, interpreter=[interpreter])
        assert finished.status == status
        assert word in finished.err
        assert word or not finished.err
        assert "dither" not in finished.err
        if state is not None:
            deliver_rest(server.url, state)
        expected = 6 if "record" in way else 5
        assert _numbers(server) == dict.fromkeys(range(expected), 1)


@pytest.mark.parametrize("way", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGTERM)", "os.abort()"])
def test_an_end_without_the_interpreter_loses_nothing_on_disk(tmp_path: Path, way: str) -> None:
    """What was queued lies on disk when the process is gone without a word, and the next run delivers it."""
    state = tmp_path / "state"
    with counting_server(delay_s=0.2) as server:
        run("faulthandler.disable()\n" + FIVE.replace(LAST_WORD, way), server.url, state)
        assert charged(state, tmp_path / "copy") == set(range(5))
        deliver_rest(server.url, state)
        assert _numbers(server) == dict.fromkeys(range(5), 1)
        assert not server.changed


def test_sigterm_from_outside_ends_the_program_at_once(tmp_path: Path) -> None:
    """The SDK takes over no signal: the default action is the default action."""
    code = FIVE.replace(LAST_WORD, "print('ready', flush=True); time.sleep(50)")
    with counting_server(mode="silent") as server:
        program = Program(code, server.url, tmp_path / "state")
        assert program.hear() == "ready"
        program.signal(signal.SIGTERM)
        assert program.finish().status == -signal.SIGTERM
        server.mode = "good"
        deliver_rest(server.url, tmp_path / "state")
        assert _numbers(server) == dict.fromkeys(range(5), 1)


@ANY_PYTHON
@ON_DISK
def test_no_thread_is_started_at_exit(tmp_path: Path, interpreter: str, on_disk: bool) -> None:
    """From Python 3.12 on an interpreter that is ending refuses new threads; the SDK asks for none then."""
    code = f"""
    import atexit
    client = make_client(delay_s=3600)

    def forbid():
        def refuse(*arguments):
            print("a thread at exit", flush=True)
            raise RuntimeError("can't create new thread at interpreter shutdown")
        threading._start_new_thread = refuse

    atexit.register(forbid)  # the last one runs first
    for number in range(5):
        ask(client, number)
    {LAST_WORD}
    """
    with counting_server() as server:
        finished = run(code, server.url, _state(tmp_path, on_disk), interpreter=[interpreter])
        assert (finished.status, finished.err) == (0, "")
        assert "a thread at exit" not in finished.out
        assert len(server.counted) == (0 if on_disk else 5)


@ANY_PYTHON
@ON_DISK
def test_a_refused_thread_is_survived(tmp_path: Path, interpreter: str, on_disk: bool) -> None:
    """Where a first answer comes so late that its thread is refused, the app hears nothing of it."""
    code = """
    import atexit
    client = make_client()

    def late():
        def refuse(*arguments):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        threading._start_new_thread = refuse
        print(ask(client, 0).status, flush=True)

    atexit.register(late)
    """
    state = _state(tmp_path, on_disk)
    with counting_server() as server:
        finished = run(code, server.url, state, interpreter=[interpreter])
        assert (finished.status, finished.out, finished.err) == (0, ["queued"], "")
        if state is not None:
            deliver_rest(server.url, state)
            assert _numbers(server) == {0: 1}


def test_one_deadline_holds_for_all_clients_of_the_process(tmp_path: Path) -> None:
    """Ten clients before a silent server end as fast as one: in one deadline of 3 s, not in ten of them."""
    code = f"""
    {PATIENT}
    clients = [make_client(state_dir=os.environ["SDK_STATE_DIR"] + str(index), exit_timeout_s=3)
               for index in range(10)]
    for client in clients:
        ask(client, 0)
    {LAST_WORD}
    """
    with counting_server(mode="silent") as server:
        finished = run(code, server.url, tmp_path / "state")
        assert (finished.status, finished.err) == (0, "")
        assert finished.exit_s < EXIT_LIMIT_S


@pytest.mark.parametrize("times", [1, 2])
def test_shutdown_is_idempotent_and_ends_in_time(tmp_path: Path, times: int) -> None:
    """Called before the exit, once or twice, it takes the place of the exit's own wait."""
    code = FIVE.replace(LAST_WORD, "client.shutdown();" * times + "print(client.flush())\n" + LAST_WORD)
    with counting_server(mode="silent") as server:
        finished = run(code, server.url, tmp_path / "state")
        assert (finished.status, finished.err) == (0, "")
        server.mode = "good"
        deliver_rest(server.url, tmp_path / "state")
        assert _numbers(server) == dict.fromkeys(range(5), 1)


def test_a_report_recorded_while_the_sender_lies_down_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the sender's look at the queue and its sleep of up to a minute no report may slip through."""
    look = Sender._next_action
    recorded = []

    def look_and_record(sender: Sender, now: float) -> float | None:
        at = look(sender, now)
        if at is None and not recorded:
            recorded.append(ask(client, 1))
        return at

    monkeypatch.setattr(Sender, "_next_action", look_and_record)
    with counting_server() as server, make_client(server.url, str(tmp_path / "state")) as client:
        assert ask(client, 0).status is RecordStatus.QUEUED
        server.wait_for(lambda counted: len(counted) == 2, "the second report", 30)
    assert [result.status for result in recorded] == [RecordStatus.QUEUED]


def test_the_command_for_the_person_ends_beside_a_running_program(tmp_path: Path) -> None:
    """`python -m dither_client status` and `pending` read the state that a program is using."""
    code = FIVE.replace("make_client()", "make_client(delay_s=3600)").replace(
        LAST_WORD, "print('ready', flush=True); sys.stdin.readline()"
    )
    with counting_server() as server:
        program = Program(code, server.url, tmp_path / "state")
        assert program.hear() == "ready"
        command = [sys.executable, "-X", "dev", "-W", "error", "-m", "dither_client"]
        for word in ("status", "pending", "ledger"):
            done = subprocess.run(
                [*command, "--state-dir", str(tmp_path / "state"), word],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "")
        program.say()
        assert program.finish().status == 0
        assert left(tmp_path / "state") == 5
