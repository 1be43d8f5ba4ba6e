"""Signals, finalizers and log handlers that come back into the SDK: an answer each time, no hang."""

import json
from pathlib import Path

from support.sdk_checks import ON_DISK, all_once, state_folder
from support.sdk_programs import run
from support.sdk_server import counting_server


@ON_DISK
def test_a_signal_handler_that_records(tmp_path: Path, on_disk: bool) -> None:
    """A handler that interrupts `record()`, `flush()` or the start of the sender gets an answer: no hang, no error."""
    code = """
    client = make_client(exit_timeout_s=30)
    inside, outside, depth = [], [], 0
    numbers = iter(range(1_000, 3_000))

    def handler(*_):
        global depth
        if depth == 3:  # on a busy machine the next alarm always comes before an answer: without end
            return
        depth += 1
        try:
            number = next(numbers, None)
            if number is not None:
                inside.append((number, ask(client, number)))
        finally:
            depth -= 1

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0005)
    for number in range(1_000):
        outside.append((number, ask(client, number)))
    client.flush(0.3)
    signal.setitimer(signal.ITIMER_REAL, 0)
    senders = [t for t in threading.enumerate() if t.name == "dither-sender"]
    assert len(senders) == 1, (senders, client.stats())
    kinds = {result.reason for _, result in inside + outside}
    assert kinds <= {"", "reentrant", "busy"}, kinds
    print(len(inside), "reentrant" in kinds, client.flush(20).pending)
    print([number for number, result in inside + outside if result.status == "queued"])
    """
    with counting_server() as server:
        finished = run(code, server.url, state_folder(tmp_path, on_disk))
        assert (finished.status, finished.trouble) == (0, "")
        interrupted, reentrant, pending = finished.out[0].split()
        assert (reentrant, pending) == ("True", "0")
        assert int(interrupted) > 20
        all_once(server, set(json.loads(finished.out[1])))


def test_the_first_record_in_a_handler_that_interrupts_the_start_of_the_sender() -> None:
    """There is one sender, even where a handler records while the thread is being started."""
    code = """
    client = make_client(exit_timeout_s=30)
    start = threading.Thread.start

    def start_and_interrupt(thread):
        threading.Thread.start = start
        ask(client, 1)
        start(thread)

    threading.Thread.start = start_and_interrupt
    ask(client, 0)
    print(len([t for t in threading.enumerate() if t.name == "dither-sender"]), client.flush(20).pending)
    """
    with counting_server(delay_s=0.2) as server:
        finished = run(code, server.url)
        assert (finished.status, finished.out, finished.trouble) == (0, ["1 0"], "")
        all_once(server, {0, 1})


@ON_DISK
def test_finalizers_and_log_handlers_that_record(tmp_path: Path, on_disk: bool) -> None:
    """Finalizers, and every log line of SDK, requests and urllib3, come back into `record()` from any thread."""
    code = """
    import gc, logging
    client = make_client(exit_timeout_s=30, delay_s=0.01)
    lock = threading.Lock()
    numbers = iter(range(1_000, 3_000))
    seen = []

    def answer():
        if lock.acquire(blocking=False):
            try:
                number = next(numbers, None)
            finally:
                lock.release()
            if number is not None:
                seen.append((number, ask(client, number)))

    class Dying:
        def __init__(self):
            self.myself = self
        def __del__(self):
            answer()

    class Handler(logging.Handler):
        def emit(self, entry):
            answer()

    logging.basicConfig(level=logging.DEBUG, handlers=[Handler()])
    gc.set_threshold(20, 2, 2)
    for number in range(300):
        Dying()
        seen.append((number, ask(client, number)))
    gc.set_threshold(700, 10, 10)
    gc.collect()
    kinds = {result.reason for _, result in seen}
    assert kinds <= {"", "reentrant", "busy"}, kinds
    logging.getLogger().handlers.clear()
    logging.disable()
    print(client.flush(20).pending)
    print([number for number, result in seen if result.status == "queued"])
    """
    with counting_server() as server:
        finished = run(code, server.url, state_folder(tmp_path, on_disk))
        assert (finished.status, finished.trouble) == (0, "")
        assert finished.out[0] == "0"
        queued = set(json.loads(finished.out[1]))
        assert len(queued) > 300
        all_once(server, queued)


def test_a_client_that_the_app_drops_is_collected() -> None:
    """The hooks of fork and exit hold clients weakly: one that never recorded goes when the app lets it go."""
    code = """
    import gc, weakref
    client = make_client()
    seen = weakref.ref(client)
    del client
    gc.collect()
    print(seen() is None)
    """
    with counting_server() as server:
        finished = run(code, server.url)
        assert (finished.status, finished.out, finished.trouble) == (0, ["True"], "")
