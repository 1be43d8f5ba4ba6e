"""Forks and processes around `record()`: everything once, nothing shared, no hang."""

import json
import sys
from pathlib import Path

import pytest

from support.sdk_checks import ON_DISK, all_once, state_folder
from support.sdk_programs import Program, charged, deliver_rest, left, run
from support.sdk_server import counting_server

HAMMER = """
client = make_client(delay_s=0.05, exit_timeout_s=30)

def hammer(first, step):
    for number in range(first, first + 40 * step, step):
        result = ask(client, number)
        while result.reason == "busy":   # said, and not charged: the app may ask again
            result = ask(client, number)
        assert result.status == "queued", result

def in_threads(first, threads):
    running = [threading.Thread(target=hammer, args=(first + index, threads)) for index in range(threads)]
    for thread in running:
        thread.start()
    return running

parents = in_threads(0, 4)
children = []
for child in range(8):
    pid = os.fork()
    if pid == 0:
        for thread in in_threads(1_000 + 100 * child, 2):
            thread.join()
        sys.exit(0)                      # the interpreter's own end, with its exit hooks
    children.append(pid)
for thread in parents:
    thread.join()
print([os.waitpid(pid, 0)[1] for pid in children])
"""


@ON_DISK
def test_eight_children_and_four_threads_arrive_once(tmp_path: Path, on_disk: bool) -> None:
    """8 forked children and 4 threads hammer `record()`: each report arrives once, and shares its noise with none."""
    state = state_folder(tmp_path, on_disk)
    with counting_server() as server:
        finished = run(HAMMER, server.url, state)
        assert (finished.status, finished.trouble) == (0, "")
        assert json.loads(finished.out[-1]) == [0] * 8
        if state is not None:
            deliver_rest(server.url, state)
        expected = set(range(160)) | {1_000 + 100 * child + n for child in range(8) for n in range(80)}
        all_once(server, expected)


@ON_DISK
def test_the_parents_reports_are_the_parents(tmp_path: Path, on_disk: bool) -> None:
    """A child that flushes sends its own report and none of those that its parent had queued before the fork."""
    code = """
    client = make_client(delay_s=3600)
    for number in range(10):
        ask(client, number)
    pid = os.fork()
    if pid == 0:
        assert ask(client, 1_000).status == "queued"
        result = client.flush(20)
        os._exit(0 if (result.sent, result.pending) == (1, 0) else 1)
    print(os.waitpid(pid, 0)[1], flush=True)
    sys.stdin.readline()
    print(client.flush(20).sent)
    """
    with counting_server() as server:
        program = Program(code, server.url, state_folder(tmp_path, on_disk))
        assert program.hear() == "0"
        assert server.snapshot() == {1_000: 1}
        program.say()
        finished = program.finish()
        assert (finished.status, finished.out, finished.trouble) == (0, ["10"], "")
        all_once(server, {*range(10), 1_000})


@pytest.mark.parametrize(("on_disk", "forks"), [(True, 800), (False, 200)], ids=["disk", "memory"])
def test_a_thousand_forks_never_block(tmp_path: Path, on_disk: bool, forks: int) -> None:
    """While 4 threads record, 1,000 children are forked, record and end without a word; none of them hangs."""
    code = """
    client = make_client(delay_s=0.1, exit_timeout_s=30)
    done = threading.Event()
    queued = []

    def hammer(first):
        for number in range(first, first + 1_000):
            if ask(client, number).status == "queued":
                queued.append(number)
            if done.wait(0.001):
                return

    threads = [threading.Thread(target=hammer, args=(1_000 * (2 + index),)) for index in range(4)]
    for thread in threads:
        thread.start()
    statuses = []
    for child in range(int(os.environ["FORKS"])):
        pid = os.fork()
        if pid == 0:
            result = ask(client, child)
            os._exit(0 if result.status == "queued" else 1 if result.reason == "busy" else 2)
        statuses.append(os.waitpid(pid, 0)[1] >> 8)
    done.set()
    for thread in threads:
        thread.join()
    import json
    print(json.dumps([statuses, queued]))
    """
    state = state_folder(tmp_path, on_disk)
    with counting_server() as server:
        finished = run(code, server.url, state, environ={"FORKS": str(forks)}, hang_limit_s=120)
        assert (finished.status, finished.trouble) == (0, "")
        statuses, queued = json.loads(finished.out[-1])
        assert len(statuses) == forks
        assert set(statuses) <= {0, 1}
        expected = set(queued)
        if state is not None:
            deliver_rest(server.url, state)
            expected |= {child for child, status in enumerate(statuses) if status == 0}
            assert charged(state, tmp_path / "copy") == expected
            assert statuses.count(1) < forks // 10
        all_once(server, expected)


AROUND_FORK = {
    "while the sender is sending": "time.sleep(0.6)",
    "in a thread": "",
    "while the sender is importing requests": """
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "urllib3":
            time.sleep(1)
sys.meta_path.insert(0, Slow())
ask(client, 0)
time.sleep(0.3)
""",
    "in a signal handler": "signal.signal(signal.SIGALRM, lambda *_: fork()); signal.raise_signal(signal.SIGALRM)",
}


@pytest.mark.parametrize("what", AROUND_FORK)
@ON_DISK
def test_a_fork_in_the_middle_of_something(tmp_path: Path, what: str, on_disk: bool) -> None:
    """Whatever the process is doing when it forks, both sides go on, and each sends what it has recorded."""
    fork = {
        "in a thread": "t = threading.Thread(target=fork); t.start(); t.join()",
        "in a signal handler": "",
    }
    code = f"""
client = make_client(exit_timeout_s=30)
children = []
def fork():
    pid = os.fork()
    if pid == 0:
        result = ask(client, 1_000)
        while result.reason == "busy":
            result = ask(client, 1_000)
        sent = client.flush(20)
        os._exit(0 if (sent.sent, sent.pending) == (1, 0) else 1)
    children.append(pid)
{"" if "importing" in what else "ask(client, 0)"}
{AROUND_FORK[what]}
{fork.get(what, "fork()")}
ask(client, 1)
print([os.waitpid(pid, 0)[1] for pid in children], client.flush(20).pending)
"""
    with counting_server(delay_s=1.0 if "sending" in what else 0.0) as server:
        finished = run(code, server.url, state_folder(tmp_path, on_disk))
        assert (finished.status, finished.out, finished.trouble) == (0, ["[0] 0"], "")
        all_once(server, {0, 1, 1_000})


@ON_DISK
def test_forks_in_a_signal_handler_that_interrupts_record(tmp_path: Path, on_disk: bool) -> None:
    """A fork inside the transaction itself voids the child's half of it, and harms neither side."""
    code = """
    client = make_client(delay_s=3600, exit_timeout_s=30)
    children = []
    numbers = iter(range(1_000, 1_040))

    def fork(*_):
        number = next(numbers, None)     # the handler may interrupt itself
        if number is None:
            return
        pid = os.fork()
        if pid == 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                result = ask(client, number)
            except BaseException:
                os._exit(3)
            if result.status != "queued" and result.reason not in ("forked", "busy", "reentrant"):
                sys.stderr.write(repr(result))
                os._exit(2)
            os._exit(0 if result.status == "queued" else 1)
        children.append((number, pid))

    signal.signal(signal.SIGALRM, fork)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
    queued = []
    for number in range(1_000):
        result = ask(client, number)
        assert result.status == "queued" or result.reason == "busy", result
        if result.status == "queued":
            queued.append(number)
    signal.setitimer(signal.ITIMER_REAL, 0)
    statuses = [(number, os.waitpid(pid, 0)[1] >> 8) for number, pid in children]
    print(client.flush(20).pending)
    import json
    print(json.dumps([statuses, queued]))
    """
    state = state_folder(tmp_path, on_disk)
    with counting_server() as server:
        finished = run(code, server.url, state)
        assert (finished.status, finished.trouble) == (0, "")
        statuses, queued = json.loads(finished.out[-1])
        assert len(statuses) > 10
        assert {status for _, status in statuses} <= {0, 1}
        expected = set(queued)
        if state is not None:
            deliver_rest(server.url, state)
            expected |= {number for number, status in statuses if status == 0}
            assert charged(state, tmp_path / "copy") == expected
        all_once(server, expected)


def test_a_child_that_outlives_its_parent_keeps_its_ledger(tmp_path: Path) -> None:
    """A program that forks itself into the background: the parent closes the state and goes, the child's rows stay.

    A child that shared the parent's connection would write into a log that the parent's close has removed.
    """
    code = """
    client = make_client(delay_s=3600)
    for number in range(3):
        ask(client, number)
    if os.fork():
        client.shutdown()
        os._exit(0)
    for number in range(3, 6):
        assert ask(client, number).status == "queued"
    sys.stdin.readline()                 # the parent has gone
    for number in range(6, 9):
        assert ask(client, number).status == "queued"
    print("recorded", flush=True)
    sys.stdin.readline()
    os._exit(0)
    """
    state = tmp_path / "state"
    with counting_server() as server:
        program = Program(code, server.url, state)
        program.popen.wait(60)
        program.say()
        assert program.hear() == "recorded"
        assert charged(state, tmp_path / "copy") == set(range(9))
        program.say()
        assert program.finish().trouble == ""
        assert charged(state, tmp_path / "copy") == set(range(9))
        deliver_rest(server.url, state)
        all_once(server, set(range(9)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    """Workers of multiprocessing record beside their parent; what they did not send themselves a later run delivers."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing, os
from support.sdk_app import ask, make_client

client = None

def work(first):
    global client
    if client is None:
        client = make_client(exit_timeout_s=30)
    for number in range(first, first + 10):
        result = ask(client, number)
        while result.reason == "busy":
            result = ask(client, number)
        assert result.status == "queued", result
    return os.getpid()

if __name__ == "__main__":
    client = make_client(exit_timeout_s=30)
    for number in range(10):
        assert ask(client, number).status == "queued"
    with multiprocessing.get_context({method!r}).Pool(3) as pool:
        pids = pool.map(work, range(1_000, 1_080, 10), chunksize=1)
        pool.close()
        pool.join()
    assert os.getpid() not in pids
""")
    state = tmp_path / "state"
    with counting_server() as server:
        code = f"import runpy\nsys.argv = [{str(program)!r}]\nrunpy.run_path({str(program)!r}, run_name='__main__')"
        if method == "fork":
            finished = run(code, server.url, state)
        else:  # a new interpreter imports the main module by its path
            finished = run(
                f"import subprocess; sys.exit(subprocess.call([sys.executable, '-W', 'error', {str(program)!r}]))",
                server.url, state,
            )  # fmt: skip
        assert (finished.status, finished.trouble) == (0, "")
        deliver_rest(server.url, state)
        all_once(server, {*range(10), *range(1_000, 1_080)})


def test_four_processes_share_one_state_directory(tmp_path: Path) -> None:
    """4 processes record 50 answers each into one directory: each arrives once; a busy one is said and counted."""
    code = """
    client = make_client(delay_s=0.05, exit_timeout_s=30)
    first = int(os.environ["FIRST"])
    sys.stdin.readline()
    results = [ask(client, number) for number in range(first, first + 50)]
    queued = [number for number, result in enumerate(results, first) if result.status == "queued"]
    assert {result.reason for result in results} <= {"", "busy"}, results
    assert client.stats().get("dropped:busy", 0) == 50 - len(queued)
    print(queued)
    """
    state = tmp_path / "state"
    with counting_server() as server:
        programs = [
            Program(code, server.url, state, environ={"FIRST": str(1_000 * index)}) for index in range(4)
        ]
        for program in programs:
            program.say()
        ended = [program.finish() for program in programs]
        assert [finished.status for finished in ended] == [0] * 4, [finished.err for finished in ended]
        queued = {number for finished in ended for number in json.loads(finished.out[-1])}
        assert len(queued) >= 180
        deliver_rest(server.url, state)
        assert charged(state, tmp_path / "copy") == queued
        all_once(server, queued)


def test_a_program_that_forks_without_using_the_child_costs_the_parent_nothing(tmp_path: Path) -> None:
    """Children that exec or exit at once leave no trace in the state."""
    code = """
    client = make_client(delay_s=3600)
    ask(client, 0)
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", ""])
        assert os.waitpid(pid, 0)[1] == 0
    ask(client, 1)
    """
    state = tmp_path / "state"
    with counting_server() as server:
        finished = run(code, server.url, state)
        assert (finished.status, finished.trouble) == (0, "")
        assert left(state) == 2
        deliver_rest(server.url, state)
        all_once(server, {0, 1})


def test_programs_see_their_own_interpreter() -> None:
    """The programs of these tests run on the interpreter of the test, with warnings as errors."""
    with counting_server() as server:
        finished = run("print(sys.executable, sys.warnoptions[-1], sys.flags.dev_mode)", server.url)
        assert finished.out == [f"{sys.executable} error True"]
