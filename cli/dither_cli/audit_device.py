"""A device under audit: a process of its own that uses the installed SDK as an app does.

::

    python -P -m dither_cli.audit_device < task.json

It reads one task, answers it through `Client.record()`, and prints what would have left the device, as one JSON line.
It imports the SDK and nothing else of Dither, and knows no statistics.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

Task = dict[str, Any]
Result = dict[str, Any]

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
FLUSH_EVERY: Final = 500
"""Hours between two deliveries: fewer than the days for which a server takes late reports."""

SIDES: Final = ("before", "parent", "first", "second")
_DELIVERY_S: Final = 60.0
_BUSY_TRIES: Final = 200  # of 50 ms each
_STILL_PID: Final = 4_242


def metric_table(mechanism: str, epsilon: float, d: int) -> dict[str, Any]:
    """One hourly metric as a registry has it, with the labels v0, v1, ..."""
    return {
        "version": 1,
        "type": "categorical",
        "description": "asked by dither audit",
        "categories": [f"v{index}" for index in range(d)],
        "epsilon": epsilon,
        "mechanism": mechanism,
        "period": "hour",
        "dimensions": {"side": list(SIDES)},
        "min_reports": 1,
    }


class Device:
    """One client with a clock that is moved by hand, and a transport that keeps what is sent.

    Args:
        metrics: tables by name.
        state_dir: where its state lives; None for memory.
        outcomes: what the transport answers, see `MemoryTransport`.
    """

    def __init__(self, metrics: dict[str, Any], state_dir: str | None, outcomes: Sequence[Any] = ()) -> None:
        # Imported here and not above: some tasks change the process before the SDK is there.
        from dither_client import Client  # noqa: PLC0415
        from dither_client.testing import FakeClock, MemoryTransport  # noqa: PLC0415

        self.clock = FakeClock(BEGINNING)
        self.transport = MemoryTransport(*outcomes)
        self.client = Client(
            "http://localhost",
            {"schema": 1, "project": "audit", "metrics": metrics},
            ingest_key="audit",
            state_dir=state_dir,
            max_epsilon=max(table.get("epsilon_permanent", table["epsilon"]) for table in metrics.values()),
            consent=True,
            enabled=True,
            delay_s=3_600,  # nothing leaves before it is told to
            max_queue_reports=1_000_000,
            max_queue_bytes=1_000_000_000,
            transport=self.transport,
            clock=self.clock,
        )

    def answer(self, metric: str, index: int, side: str = SIDES[0]) -> str:
        """Record one answer, again while another process holds the state; what the SDK said."""
        for _ in range(_BUSY_TRIES):
            result = self.client.record(metric, f"v{index}", {"side": side})
            if result.reason != "busy":
                break
        return ":".join(filter(None, (str(result.status), result.reason)))

    def answer_hours(self, metrics: Sequence[str], hours: range, side: str = SIDES[0]) -> list[str]:
        """Record value 0 of every metric in each of these hours; what the SDK said that is not "queued"."""
        said = []
        for hour in hours:
            self.clock.now = BEGINNING + hour * HOUR
            said += [self.answer(metric, 0, side) for metric in metrics]
        return [one for one in said if one != "queued"]

    def deliver(self) -> None:
        """Send everything, and wait for it; the transport decides what becomes of it."""
        self.client.flush(_DELIVERY_S)

    def try_in_vain(self) -> None:
        """Have the sender try at least once; the transport refuses."""
        tries = len(self.transport.bodies)
        deadline = time.monotonic() + _DELIVERY_S
        while len(self.transport.bodies) == tries and time.monotonic() < deadline:
            self.client.flush(0.2)

    def queue(self) -> list[dict[str, Any]]:
        """The reports that wait, sealed or not."""
        waiting = self.client.pending()
        sealed = [report for body in waiting.batches for report in json.loads(body)["reports"]]
        return sealed + [json.loads(report) for report in waiting.reports]

    def renew(self) -> None:
        """Take consent away and give it again: what was memoised is gone."""
        self.client.set_consent(False)
        self.client.set_consent(True)

    def bodies(self) -> list[str]:
        """The body of every try."""
        return [body.decode("utf-8") for body in self.transport.bodies]


def say(line: Result) -> None:
    """Print one JSON line."""
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def draw(task: Task) -> Result:
    """Answer one metric hour after hour; the datum of each report, in order.

    The task has ``mechanism``, ``epsilon``, ``d``, ``pair``, ``state_dir``, and ``truths``, a string with 1 where the
    first value of the pair is the answer.
    """
    device = Device(
        {"answer": metric_table(task["mechanism"], task["epsilon"], task["d"])}, task["state_dir"]
    )
    second, first = task["pair"][1], task["pair"][0]
    refused: dict[str, int] = {}
    expected = []
    for number, is_first in enumerate(task["truths"], 1):
        expected.append(device.clock.now.isoformat()[:13])
        said = device.answer("answer", first if is_first == "1" else second)
        if said != "queued":
            refused[said] = refused.get(said, 0) + 1
        device.clock.now += HOUR
        if number % FLUSH_EVERY == 0 or number == len(task["truths"]):
            device.deliver()
    sent: dict[str, list[Any]] = {}
    for report in device.transport.reports:
        sent.setdefault(report["window"], []).append(report["data"])
    device.client.shutdown()
    return {
        "data": [sent[window][0] for window in expected if window in sent],
        "missing": len(set(expected) - sent.keys()),
        "unexpected": sum(map(len, sent.values())) - len(set(expected) & sent.keys()),
        "refused": refused,
    }


def retry(task: Task) -> Result:
    """Record, try to send three times in vain, and end without a farewell, as at a crash."""
    from dither_client.transport import Retry  # noqa: PLC0415

    unanswered = Retry("network:audit", after_s=0.0, answered=False)
    device = Device(
        task["metrics"], task["state_dir"], [unanswered, Retry("http:503", after_s=0.0), unanswered]
    )
    refused = []
    shown = []
    for part in range(3):
        hours = range(part * task["hours"] // 3, (part + 1) * task["hours"] // 3)
        refused += device.answer_hours(list(task["metrics"]), hours)
        shown += device.queue()
        device.try_in_vain()
    say({"shown": shown + device.queue(), "bodies": device.bodies(), "refused": refused})
    os._exit(0)


def restart(task: Task) -> Result:
    """Find what `retry` left, record all of it once more, fail to send once more, then send."""
    from dither_client.transport import Retry  # noqa: PLC0415

    device = Device(task["metrics"], task["state_dir"], [Retry("http:503", after_s=0.0)])
    shown = device.queue()
    again = device.answer_hours(list(task["metrics"]), range(task["hours"]))
    device.try_in_vain()
    device.transport.outcomes.clear()  # from here on everything is taken
    device.deliver()
    left = len(device.queue())
    device.client.shutdown()
    asked = task["hours"] * len(task["metrics"])
    return {"shown": shown, "bodies": device.bodies(), "answered_again": asked - len(again), "left": left}


def fork(task: Task) -> Result:
    """Record, fork twice, and record the same answers in both children and the parent; what each of them sends."""
    device = Device(task["metrics"], task["state_dir"])
    device.answer_hours(list(task["metrics"]), range(task["hours"]))
    children = [_in_a_child(device, task, side) for side in ("first", "second")]
    parent = _answers_of(device, task, "parent")
    device.client.shutdown()
    return {"children": children, "parent": parent}


def _answers_of(device: Device, task: Task, side: str) -> Result:
    refused = device.answer_hours(list(task["metrics"]), range(task["hours"]), side)
    device.deliver()
    return {"bodies": device.bodies(), "refused": refused}


def _in_a_child(device: Device, task: Task, side: str) -> Result | None:
    """One child after the other: what they draw differs by nothing but the process that draws. None where it fails."""
    told = Path(task["scratch"]) / f"{side}.json"
    child = os.fork()
    if not child:
        try:
            told.write_text(json.dumps(_answers_of(device, task, side)), encoding="utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    result: Result | None = json.loads(told.read_text(encoding="utf-8")) if told.exists() else None
    return result


def replay(task: Task) -> Result:
    """Record with everything that a careless generator is seeded from held fixed; the data by metric."""
    _hold_still()
    _seed_generators(task["seed"])
    device = Device(task["metrics"], None)
    _seed_generators(task["seed"])  # once more: importing may have drawn
    refused = device.answer_hours(list(task["metrics"]), range(task["hours"]))
    return {"data": _by_metric(device.queue()), "refused": refused}


def replace(task: Task) -> Result:
    """Record while the operating system's generator is replaced by a known stream; the data, and if it was asked."""
    stream = _KnownStream()
    os.urandom = stream.read
    random._urandom = stream.read  # type: ignore[attr-defined]  # what `secrets` draws from
    random.seed(task["seed"])
    device = Device(task["metrics"], None)
    idle = 0
    refused = []
    for metric in task["metrics"]:
        for hour in range(task["hours"]):
            before = stream.taken
            refused += device.answer_hours([metric], range(hour, hour + 1))
            idle += stream.taken == before
    return {"data": _by_metric(device.queue()), "idle": idle, "refused": refused}


class _KnownStream:
    """A stream of bytes for each thread, the same in each process: SHAKE-256 of a counter of calls."""

    def __init__(self) -> None:
        self.taken = 0

    def read(self, size: int) -> bytes:
        """The next bytes; those of other threads than the main one are real."""
        import hashlib  # noqa: PLC0415
        import threading  # noqa: PLC0415

        if threading.current_thread() is not threading.main_thread():
            return os.getrandom(size)
        self.taken += 1
        return hashlib.shake_256(self.taken.to_bytes(8, "little")).digest(size)


def _by_metric(reports: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The data of each metric in the order of the hours."""
    found: dict[str, list[Any]] = {}
    for report in sorted(reports, key=lambda report: str(report["window"])):
        found.setdefault(report["metric"], []).append(report["data"])
    return found


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    try:
        import numpy.random  # noqa: PLC0415
    except ModuleNotFoundError:
        return
    numpy.random.seed(seed)


def _hold_still() -> None:
    """Let the clock and the process id stand still: what careless seeds are made of."""
    now = BEGINNING.timestamp()
    still: dict[str, Callable[[], float]] = {
        "time": lambda: now,
        "time_ns": lambda: int(now) * 10**9,
        "perf_counter": lambda: now,
        "perf_counter_ns": lambda: int(now) * 10**9,
    }
    for name, value in still.items():
        setattr(time, name, value)
    os.getpid = lambda: _STILL_PID


def draw_devices(task: Task) -> Result:
    """Answer one memoised metric hour after hour, the same each time; then be a new device, by a no and a yes.

    The task has ``metric``, a table, ``pair`` and ``truths`` as in `draw`, and ``hours``. The result has the data
    of each device.
    """
    device = Device({"answer": task["metric"]}, None)
    refused: list[str] = []
    data = []
    for number, is_first in enumerate(task["truths"]):
        index = task["pair"][0 if is_first == "1" else 1]
        for hour in range(number * task["hours"], (number + 1) * task["hours"]):
            device.clock.now = BEGINNING + hour * HOUR
            said = device.answer("answer", index)
            refused += [] if said == "queued" else [said]
        data.append([report["data"] for report in device.queue()])
        device.renew()
    return {"data": data, "refused": refused}


def remember(task: Task) -> Result:
    """Answer memoised metrics in these hours; with ``renewed`` first as the same device and then as a new one."""
    device = Device(task["metrics"], task["state_dir"])
    names, hours = list(task["metrics"]), task["hours"]
    refused = device.answer_hours(names, range(task["from"], task["from"] + hours))
    first = _by_metric(device.queue())
    device.deliver()
    second: dict[str, list[Any]] = {}
    if task["renewed"]:
        device.renew()
        refused += device.answer_hours(names, range(task["from"] + hours, task["from"] + 2 * hours))
        second = _by_metric(device.queue())
        device.deliver()
    device.client.shutdown()
    return {"data": first, "renewed": second, "refused": refused}


TASKS: Final[dict[str, Callable[[Task], Result]]] = {
    "draw": draw,
    "retry": retry,
    "restart": restart,
    "fork": fork,
    "replay": replay,
    "replace": replace,
    "draw_devices": draw_devices,
    "remember": remember,
}

if __name__ == "__main__":
    _task = json.load(sys.stdin)
    say(TASKS[_task["task"]](_task))
