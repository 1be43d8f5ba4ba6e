"""Fail fast: one finds out, the others do not wait."""

import threading

from dither_server.circuit import Circuit


class _Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_calls_go_while_they_are_answered():
    """Answers of any kind, errors among them, let the next calls go."""
    circuit = Circuit(0.5, _Time())
    for _ in range(3):
        assert circuit.enter() == ""
        circuit.leave()


def test_after_a_silence_calls_are_turned_away_for_the_pause():
    """The fault of the call that had no answer is what the next ones are told."""
    time = _Time()
    circuit = Circuit(0.5, time)
    assert circuit.enter() == ""
    circuit.leave("timeout")
    time.now += 0.49
    assert circuit.enter() == "timeout"


def test_after_the_pause_one_call_finds_out_and_the_others_are_turned_away():
    """Only one call at a time waits for what may still be silent; its answer lets all go."""
    time = _Time()
    circuit = Circuit(0.5, time)
    circuit.enter()
    circuit.leave("timeout")
    time.now += 0.5
    assert [circuit.enter() for _ in range(3)] == ["", "timeout", "timeout"]
    time.now += 10  # however long it takes
    assert circuit.enter() == "timeout"
    circuit.leave()
    assert [circuit.enter() for _ in range(3)] == ["", "", ""]


def test_a_look_takes_nobodys_place():
    """Whether calls are turned away can be asked without being the one that finds out."""
    time = _Time()
    circuit = Circuit(0.5, time)
    assert circuit.fault() == ""
    circuit.enter()
    circuit.leave("timeout")
    assert circuit.fault() == "timeout"
    time.now += 0.5
    assert [circuit.fault(), circuit.fault(), circuit.enter(), circuit.fault()] == ["", "", "", "timeout"]
    circuit.leave()
    assert circuit.fault() == ""


def test_a_second_silence_begins_a_new_pause():
    """A call that found nothing out turns the next ones away again, by its own fault."""
    time = _Time()
    circuit = Circuit(0.5, time)
    circuit.enter()
    circuit.leave("timeout")
    time.now += 0.5
    assert circuit.enter() == ""
    time.now += 1
    circuit.leave("replicas")
    time.now += 0.49
    assert circuit.enter() == "replicas"
    time.now += 0.01
    assert circuit.enter() == ""


def test_of_many_threads_one_goes():
    """The one that finds out is one, however many ask together."""
    time = _Time()
    circuit = Circuit(0.5, time)
    circuit.enter()
    circuit.leave("timeout")
    time.now += 1
    together, found = threading.Barrier(16), []

    def ask():
        together.wait(20)
        found.append(circuit.enter())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == [""] + 15 * ["timeout"]
