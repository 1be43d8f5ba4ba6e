"""SIGKILL at random instants: the ledger never knows less than the server, and nothing is counted twice."""

import random
import signal
import threading
from pathlib import Path

from support.sdk_programs import Program, charged, deliver_rest, left
from support.sdk_server import CountingServer, counting_server

RUNS = 200
LANES = 2
COUNT = 8
LONGEST_S = 0.12
ZYGOTE = "from support import sdk_zygote; sdk_zygote.main()"


def _lane(server: CountingServer, state: Path, runs: int, errors: list[str], killed: list[int]) -> None:
    program = Program(ZYGOTE, server.url, state, hang_limit_s=120)
    copy = state.with_name(state.name + "-copy")
    try:
        for run in range(runs):
            delay_s = random.random() * LONGEST_S  # noqa: S311  no secret
            program.say(f"{run * COUNT} {COUNT} {delay_s}")
            killed.append(int(program.hear()))
            counted = server.snapshot()  # first this, then the ledger: the ledger may only know more
            unbooked = set(counted) - charged(state, copy)
            if unbooked:
                errors.append(f"run {run}: counted without a charge: {sorted(unbooked)}")
    finally:
        program.popen.stdin.close()  # type: ignore[union-attr]
        program.popen.stdin = None
        finished = program.finish()
        if finished.trouble or finished.status:
            errors.append(finished.trouble or f"status {finished.status}")


def test_killed_at_random_instants_200_times(tmp_path: Path) -> None:
    """After each kill every counted report has its charge; at the end one run delivers the rest; none counts twice.

    The server loses a tenth of its answers and takes its time, so that kills also fall between count and answer.
    """
    errors: list[str] = []
    killed: list[int] = []
    states = [tmp_path / f"state{lane}" for lane in range(LANES)]
    with (
        counting_server(delay_s=0.02, lose=0.1) as first,
        counting_server(delay_s=0.02, lose=0.1) as second,
    ):
        servers = [first, second]
        lanes = [
            threading.Thread(target=_lane, args=(server, state, RUNS // LANES, errors, killed))
            for server, state in zip(servers, states, strict=True)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        assert errors == []
        assert len(killed) == RUNS
        assert set(killed) == {signal.SIGKILL}
        for server, state in zip(servers, states, strict=True):
            charges = charged(state, tmp_path / "copy")
            assert len(charges) > RUNS
            assert server.arrivals > len(server.bodies)  # some batches came again
            server.lose = 0
            deliver_rest(server.url, state)
            counted = server.snapshot()
            assert set(counted) == charges == charged(state, tmp_path / "copy")
            assert set(counted.values()) == {1}
            assert server.changed == []
            assert len(set(server.data)) == len(server.data)
            assert left(state) == 0
