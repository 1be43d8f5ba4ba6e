"""Processes that share one ledger: no limit with a delta is overspent, a group has one lot, whatever is killed."""

import shutil
import signal
import sqlite3
import time
from pathlib import Path

from dither_client import losses
from dither_protocol.accounting.loss import PrivacyLoss
from dither_protocol.accounting.renyi import RenyiFilter, renyi_total
from support.sdk_app import registry
from support.sdk_programs import Program, run

NOBODY = "http://127.0.0.1:9"
LIMIT, DELTA = 12.0, 1e-6
PROCESSES = 3
DAYS = 40

SPEND = f"""
from dither_client import Client
from support.sdk_app import INGEST_KEY, document, fixed_clock
asked = document() | {{"privacy": {{"max_epsilon_lifetime": {LIMIT}, "delta": {DELTA}}}}}
client = Client(os.environ["SDK_URL"], asked, ingest_key=INGEST_KEY, state_dir=os.environ["SDK_STATE_DIR"],
    clock=fixed_clock, delay_s=3600, exit_timeout_s=0)
print("ready", flush=True)
first, refused = int(input()), 0
for number in range(first, 900, {PROCESSES}):
    while (result := ask(client, number)).reason == "busy":
        pass
    refused += str(result.status) == "budget_exhausted"
    if refused == 5:
        break
print("refused", refused)
"""

ASK = f"""
from datetime import timedelta
from support.clients import make_client
from support.groups import Clock, MEMBERS, group_document
clock = Clock()
client = make_client(registry=group_document(), state_dir=os.environ["SDK_STATE_DIR"], clock=clock, exit_timeout_s=0)
print("ready", flush=True)
turn = int(input())
for day in range({DAYS}):
    for place in range(3):
        while client.record(MEMBERS[(place + turn) % 3], True).reason == "busy":
            pass
    clock.now += timedelta(days=1)
"""


def _together(code: str, state: Path, kill: bool) -> None:
    """Run it in several processes at once, which begin together; one is killed on the way and started again."""
    programs = [Program(code, NOBODY, state) for _ in range(PROCESSES)]
    for program in programs:
        assert program.hear() == "ready"
    for number, program in enumerate(programs):
        program.say(str(number))
    if kill:
        time.sleep(0.02)
        programs[0].signal(signal.SIGKILL)
        programs[0].finish()
        programs[0] = Program(code, NOBODY, state)
        assert programs[0].hear() == "ready"
        programs[0].say("0")
    for program in programs:
        finished = program.finish()
        assert (finished.status, finished.trouble) == (0, "")


def _rows(state: Path, query: str) -> list[tuple[object, ...]]:
    copy = state.with_name(state.name + "-copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(state, copy)
    with sqlite3.connect(copy / "dither.sqlite3") as connection:
        return connection.execute(query).fetchall()


def _most() -> int:
    """How many reports the limit takes, by hand."""
    loss, rule = PrivacyLoss.of(registry().metric("q0").mechanism), RenyiFilter(LIMIT, DELTA)
    count = 0
    while (count + 1) * loss.epsilon <= LIMIT or rule.allows(renyi_total([(loss, count + 1)])):
        count += 1
    return count


def _check_spending(state: Path) -> None:
    """Exactly what the limit takes, and every sum is that of the rows."""
    assert _rows(state, "SELECT count(*) FROM charges") == [(_most(),)]
    oracle = registry().metric("q0").mechanism
    kind = losses.kind_scope(500_000_000, (oracle,))
    assert _rows(state, "SELECT scope, amount FROM totals WHERE scope LIKE 'loss%'") == [(kind, _most())]
    sums = (
        "SELECT (SELECT sum(nano_epsilon) FROM charges), (SELECT amount FROM totals WHERE scope = 'lifetime')"
    )
    ((charged, total),) = _rows(state, sums)
    assert charged == total
    assert _rows(state, "SELECT count(*) FROM open_reports") == [(_most(),)]


def test_processes_never_overspend_a_limit_with_a_delta(tmp_path: Path) -> None:
    """Three at once, each with other questions: together they make as many reports as one would."""
    _together(SPEND, tmp_path / "state", kill=False)
    _check_spending(tmp_path / "state")


def test_a_killed_process_neither_forgets_nor_spends_twice(tmp_path: Path) -> None:
    """Charge, kind and report stand or fall together."""
    _together(SPEND, tmp_path / "state", kill=True)
    _check_spending(tmp_path / "state")


def test_processes_share_the_lot_of_a_group(tmp_path: Path) -> None:
    """Asked in other orders, at other speeds, and one of them killed: no window has reports of two members.

    A process that is ahead cleans lots of windows in which another one still is; what was answered then decides.
    """
    state = tmp_path / "state"
    _together(ASK, state, kill=True)
    windows = _rows(state, "SELECT window, count(DISTINCT metric), count(*) FROM charges GROUP BY window")
    assert {(members, reports) for _, members, reports in windows} == {(1, 1)}
    assert len(windows) > DAYS // 2


def test_a_child_forked_by_a_program_shares_lot_and_limit(tmp_path: Path) -> None:
    """Parent and child ask at once after the fork: one member, one charge."""
    code = """
    from support.clients import make_client
    from support.groups import MEMBERS, group_document
    client = make_client(registry=group_document(), state_dir=os.environ["SDK_STATE_DIR"], exit_timeout_s=0)
    child = os.fork()
    for name in MEMBERS if child else reversed(MEMBERS):
        while client.record(name, True).reason == "busy":
            pass
    if child:
        assert os.waitpid(child, 0)[1] == 0
    """
    finished = run(code, NOBODY, tmp_path / "state")
    assert (finished.status, finished.trouble) == (0, "")
    assert _rows(tmp_path / "state", "SELECT count(*), sum(nano_epsilon) FROM charges") == [(1, 2 * 10**9)]
