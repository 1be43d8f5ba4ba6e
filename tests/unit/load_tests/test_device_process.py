"""Devices of one process against a scripted server: what they send, again and when."""

import json
import threading
import time
from typing import Any

import pytest

from dither_fleet.device_process import Devices, Order
from dither_fleet.faults import Faults
from dither_fleet.load_run import LoadRun, orders
from dither_fleet.making import Fleetwide, OldVersion
from dither_fleet.profiles import Schedule
from dither_fleet.tally import Tally
from dither_protocol.registry import Metric, registry_from_document
from dither_server.metric_document import metric_document
from support.http import Answer, scripted_server
from support.registries import small_document

ACCEPTED = b'{"accepted":1,"duplicate":false,"rejected":[]}'
DUPLICATE = b'{"accepted":0,"duplicate":true,"rejected":[]}'
HANG_S = 60.0


def _document() -> dict[str, Any]:
    """One question a day: a device has one batch with one report."""
    whole = small_document()
    return whole | {"metrics": {"dark_mode": whole["metrics"]["dark_mode"]}}


def _order(endpoint: str | None, devices: int, faults: str = "none", **changes: Any) -> Order:
    fleet = Fleetwide(_document(), {}, devices, 1, 1, Faults.parse(faults))
    given: dict[str, Any] = {
        "endpoint": endpoint,
        "ingest_key": "dik_x",
        "fleet": fleet,
        "schedule": Schedule("steady", devices, None),
        "process": 0,
        "processes": 1,
        "connections": 1,
        "begins": time.monotonic(),
        "ends_after_s": HANG_S,
        "patience_s": HANG_S,
    }
    return Order(**given | changes)


def _run(order: Order) -> Tally:
    devices = Devices(order)
    devices.run()
    return devices.take_tally()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off without a time from the server takes no time here."""
    monkeypatch.setattr("dither_fleet.device_process.backoff_s", lambda tries: 0.0)


def test_each_device_delivers_its_own_batch() -> None:
    """As many bodies as devices, each with its report; all settled, all timed."""
    with scripted_server(Answer(body=ACCEPTED), keep_alive=True) as server:
        tally = _run(_order(server.url, 40, connections=4))
    assert tally.devices == 40
    assert tally.settled == tally.made
    assert tally.settled.total() == len(server.bodies) == len(set(server.bodies)) == 40
    assert tally.latencies.all().total() == 40
    assert tally.waits.all().total() == 0
    assert {len(json.loads(body)["reports"]) for body in server.bodies} == {1}
    assert all(headers["Authorization"] == "Bearer dik_x" for headers in server.headers)


def test_a_retry_waits_as_long_as_the_server_says_and_sends_the_same_bytes() -> None:
    """503 and 429 with a time, a lost answer without: one report, one settlement, three retries."""
    answers = (
        Answer(503, body=b"", headers={"Retry-After": "1"}),
        Answer(429, body=b"", headers={"Retry-After": "0"}),
        Answer(status=0),
        Answer(body=DUPLICATE),
    )
    began = time.monotonic()
    with scripted_server(*answers) as server:
        tally = _run(_order(server.url, 1))
    assert time.monotonic() - began >= 1.0
    assert len(server.bodies) == 4
    assert len(set(server.bodies)) == 1
    assert tally.settled.total() == 1
    assert tally.retries == {"http:503": 1, "http:429": 1, "network:ConnectionError": 1}
    assert tally.untimed == 0
    assert tally.duplicates == 1
    assert tally.surprises == {}


def test_an_overload_without_a_time_is_noted() -> None:
    """A crowd that is told nothing comes back at once."""
    with scripted_server(Answer(503, body=b""), Answer(body=ACCEPTED)) as server:
        tally = _run(_order(server.url, 1))
    assert tally.untimed == 1


def test_a_swallowed_answer_is_asked_for_again_and_a_cut_request_never_arrived() -> None:
    """The whole first request is read by the server, or half of it; the second try is the same batch."""
    with scripted_server(Answer(body=ACCEPTED)) as server:
        swallowed = _run(_order(server.url, 3, "swallow=1"))
        # The scripted server reads what came of the broken requests as well; nothing beside these bodies was sent.
        assert len(set(server.bodies)) == 3
        assert 3 <= len(server.bodies) <= 6
        assert swallowed.retries == {"swallow": 3}
        assert swallowed.settled.total() == 3
    with scripted_server(Answer(body=ACCEPTED)) as server:
        cut = _run(_order(server.url, 3, "cut=1"))
        whole = [body for body in server.bodies if body.endswith(b"]}")]
        assert len(whole) == len(set(whole)) == 3
        assert cut.retries == {"cut": 3}
        assert cut.settled.total() == 3


def test_a_duplicate_on_purpose_must_be_known_as_one() -> None:
    """A server that takes the same batch twice is a surprise."""
    with scripted_server(Answer(body=ACCEPTED), Answer(body=DUPLICATE)) as server:
        tally = _run(_order(server.url, 1, "duplicate=1"))
        assert len(server.bodies) == 2
        assert len(set(server.bodies)) == 1
    assert tally.settled.total() == 1
    assert tally.surprises == {}
    with scripted_server(Answer(body=ACCEPTED)) as server:
        forgetful = _run(_order(server.url, 1, "duplicate=1"))
    assert forgetful.surprises == {"a batch sent once more was not known as a duplicate": 1}


def test_patience_ends_and_what_is_left_is_a_surprise() -> None:
    """A server that is never ready: the run ends, and says that a batch is nowhere."""
    with scripted_server(Answer(503, body=b"", headers={"Retry-After": "3600"})) as server:
        tally = _run(_order(server.url, 2, ends_after_s=0.3, patience_s=0.3))
    assert tally.surprises == {"a batch was given up: no patience": 2}
    assert tally.settled == {}


def test_devices_do_not_come_after_the_end() -> None:
    """What did not come is neither made nor missing."""
    with scripted_server(Answer(body=ACCEPTED)) as server:
        late = _order(server.url, 5_000, schedule=Schedule("steady", 5_000, 100.0), ends_after_s=1.0)
        tally = _run(late)
    assert tally.waits.all().total() == 101
    assert tally.devices == 101  # the first one comes at once, the last after a second
    assert tally.settled == tally.made


def test_a_stop_ends_the_devices_without_a_word() -> None:
    """Whoever stops them knows that not everything is settled."""
    with scripted_server(Answer(503, body=b"", headers={"Retry-After": "3600"})) as server:
        devices = Devices(_order(server.url, 100))
        running = threading.Thread(target=devices.run)
        running.start()
        while not server.bodies:
            time.sleep(0.01)
        devices.stop()
        running.join(HANG_S)
        assert not running.is_alive()
        assert devices.take_tally().surprises == {}


def test_processes_share_the_devices_and_add_up() -> None:
    """Two real processes: each device once, and none of their batches twice."""
    fleet = Fleetwide(_document(), {}, 101, 1, 1, Faults())
    with scripted_server(Answer(body=ACCEPTED)) as server:
        given = orders(
            fleet, Schedule("steady", 101, None), endpoint=server.url, ingest_key="dik_x", processes=2,
            connections=2, ends_after_s=HANG_S, patience_s=HANG_S,
        )  # fmt: skip
        with LoadRun(given) as run:
            while run.poll(0.1):
                pass
            assert run.tally.devices == run.tally.settled.total() == 101
        assert len(set(server.bodies)) == len(server.bodies) == 101


def test_leaving_a_run_ends_its_processes() -> None:
    """Though their server keeps them waiting."""
    fleet = Fleetwide(_document(), {}, 1_000, 1, 1, Faults())
    with scripted_server(Answer(503, body=b"", headers={"Retry-After": "3600"})) as server:
        given = orders(
            fleet, Schedule("steady", 1_000, None), endpoint=server.url, processes=1, connections=1,
            ends_after_s=HANG_S, patience_s=HANG_S,
        )  # fmt: skip
        with LoadRun(given) as run:
            while not run.tally.retries:
                run.poll(0.1)
            (process,) = run._processes
            found = process.is_alive()
    assert found
    with pytest.raises(ValueError, match="closed"):
        process.is_alive()


def _older() -> tuple[dict[str, Any], Metric]:
    """A registry whose question is in version 3, and the question as it was in version 2."""
    document = _document()
    table = document["metrics"]["dark_mode"]
    then = registry_from_document(
        document | {"metrics": {"dark_mode": table | {"version": 2, "epsilon": 0.5}}}
    )
    now = document | {"metrics": {"dark_mode": table | {"version": 3}}}
    return now, then.metric("dark_mode")


def test_an_old_version_is_rebuilt_from_what_an_operator_reads() -> None:
    """Version, noise and hash are those of then; a share of devices answers by it."""
    document, then = _older()
    current = registry_from_document(document).metric("dark_mode")
    described = json.loads(json.dumps(metric_document(current, [then, current]), default=str))
    old = OldVersion.read(described["versions"][0])
    assert old is not None
    found = old.of(current)
    assert found == then
    fleet = Fleetwide(document, {"dark_mode": old}, 50, 1, 1, Faults(old=0.5))
    assert [metric.version for metric in fleet.metrics()] == [3, 2]
    with scripted_server(Answer(body=ACCEPTED)) as server:
        _run(_order(server.url, 50, fleet=fleet))
    versions = [json.loads(body)["reports"][0]["version"] for body in server.bodies]
    assert set(versions) == {2, 3}
    assert len(versions) == 50


def test_an_old_version_that_cannot_be_rebuilt_is_left_out() -> None:
    """A hash that does not fit means that something else has changed."""
    document, then = _older()
    current = registry_from_document(document).metric("dark_mode")
    described = json.loads(json.dumps(metric_document(current, [then]), default=str))["versions"][0]
    changed = OldVersion.read(described | {"params": "00000000"})
    assert changed is not None
    assert changed.of(current) is None
    assert Fleetwide(document, {"dark_mode": changed}, 1, 1, 1, Faults()).old_registry() is None
    assert OldVersion.read(described | {"calibration": [0.5, 0.5]}) is None
