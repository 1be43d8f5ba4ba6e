"""Between server and store: replies that never come, a restart, a changed registry. A batch is counted once."""

import os
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest

from dither_server.admitting import SCRIPT
from dither_server.app import create_app
from support.buckets import bucket_batch, counted, registry_text
from support.server import NOW, Clock, bearer, running_server, settings, write_files
from support.store import Store
from support.store_proxy import Fault, store_proxy

TODAY = NOW.date()


@pytest.fixture
def store(valkey: Store) -> Store:
    """The module's store, emptied, with the admit script loaded: the first call that a fault meets is to run."""
    with valkey.client() as client:
        client.flushall()
        client.script_load(SCRIPT)
    return valkey


def _app(folder, url, *, late_days=3, now=NOW):
    """A server of its own, as after a restart."""
    found = settings(folder, url, registry_text=registry_text(late_days))
    return create_app(found, clock=Clock(now)).test_client()


def _post(app, document):
    answer = app.post("/v1/reports", json=document, headers=bearer())
    return answer.status_code, answer.get_json()


def _accounts(store):
    """What became of all reports, by word."""
    found: dict[str, int] = {}
    with store.client(decode=True) as client:
        for key in client.keys("dither:{*}:outcome:*"):
            for word, number in client.hgetall(key).items():
                found[word] = found.get(word, 0) + int(number)
    return found


@pytest.mark.parametrize("counted_between", [False, True])
def test_a_reply_that_never_comes_counts_nothing_twice(store, tmp_path, counted_between):
    """redis-py gives up after the store has written: 503, and the same bytes again are a duplicate."""
    with store_proxy(store.folder / "s.sock") as proxy:
        app = _app(tmp_path, proxy.url)
        document = bucket_batch(1, 2, 3, day=TODAY)
        proxy.spoil(Fault.SILENCE)
        status, problem = _post(app, document)
        assert (status, problem["detail"]) == (503, "the store is unavailable (timeout)")
        if counted_between:
            assert counted(store) == {1: 1, 2: 1, 3: 1}
        answers = [(503, None)]
        while answers[-1][0] == 503:  # for a moment after a silence the store is left in peace
            answers.append(_post(app, document))
        assert answers[-1] == (202, {"accepted": 0, "duplicate": True, "rejected": []})
        assert proxy.spoilt == [Fault.SILENCE]
    assert counted(store) == {1: 1, 2: 1, 3: 1}
    assert _accounts(store) == {"received": 6, "accepted": 3, "duplicate": 3, "counted": 3}


@pytest.mark.parametrize(
    ("fault", "ran_before"), [(Fault.CUT, True), (Fault.HALF_REPLY, True), (Fault.HALF_CALL, False)]
)
def test_a_connection_that_ends_is_tried_again_at_once(store, tmp_path, fault, ran_before):
    """redis-py repeats the call by itself, whether or not the store had run it, and the batch is counted once."""
    with store_proxy(store.folder / "s.sock") as proxy:
        app = _app(tmp_path, proxy.url)
        proxy.spoil(fault)
        status, answer = _post(app, bucket_batch(7, day=TODAY))
        assert (status, answer["duplicate"]) == (202, ran_before)
        assert proxy.spoilt == [fault]
    assert counted(store) == {7: 1}


def test_two_lost_connections_in_a_row_are_a_503(store, tmp_path):
    """The one repetition failed as well: the device keeps the batch, and its next try finds it there."""
    with store_proxy(store.folder / "s.sock") as proxy:
        app = _app(tmp_path, proxy.url)
        proxy.spoil(Fault.CUT, Fault.CUT)
        document = bucket_batch(8, day=TODAY)
        assert _post(app, document)[0] == 503
        assert _post(app, document)[1]["duplicate"] is True
    assert counted(store) == {8: 1}


def test_a_reply_lost_to_several_threads_counts_none_of_them_twice(store, tmp_path):
    """A shared round trip that ends within its reply is repeated whole, and each batch in it is counted once."""
    with store_proxy(store.folder / "s.sock") as proxy:
        app = _app(tmp_path, proxy.url).application
        statuses = []

        def send(start):
            for place in range(start, start + 20):
                if place % 10 == 0:
                    proxy.spoil(Fault.HALF_REPLY)
                statuses.append(_post(app.test_client(), bucket_batch(place, day=TODAY))[0])

        threads = [threading.Thread(target=send, args=(20 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(proxy.spoilt) > 1
    # a second fault may meet the repetition: then it is a 503, and what it is about is in the store all the same
    assert set(statuses) <= {202, 503}
    assert counted(store) == dict.fromkeys(range(160), 1)


@pytest.mark.parametrize("later_rule", [0, 30])
def test_a_changed_late_days_between_two_tries_counts_once(store, tmp_path, later_rule):
    """Whether a batch is a duplicate depends on its bytes alone: not on a rule that changed since, nor on the day."""
    document = bucket_batch(5, day=TODAY)
    with store_proxy(store.folder / "s.sock") as proxy:
        proxy.spoil(Fault.CUT, Fault.CUT)
        assert _post(_app(tmp_path, proxy.url, late_days=3), document)[0] == 503
    later = _app(tmp_path, store.url, late_days=later_rule, now=NOW + timedelta(days=3))
    status, answer = _post(later, document)
    rejected = [refusal["type"] for refusal in answer["rejected"]]
    assert (status, answer["accepted"], answer["duplicate"]) == (202, 0, True)
    assert rejected == ([] if later_rule else ["report-too-old"])
    assert counted(store) == {5: 1}


def test_what_was_refused_stays_refused_by_a_later_rule(store, tmp_path):
    """A batch whose reports were too late is remembered too: a more generous rule does not count its second try."""
    document = bucket_batch(6, day=TODAY)
    late = NOW + timedelta(days=3)
    with store_proxy(store.folder / "s.sock") as proxy:
        proxy.spoil(Fault.CUT, Fault.CUT)
        assert _post(_app(tmp_path, proxy.url, late_days=0, now=late), document)[0] == 503
    status, answer = _post(_app(tmp_path, store.url, late_days=30, now=late), document)
    assert (status, answer) == (202, {"accepted": 0, "duplicate": True, "rejected": []})
    assert counted(store) == {}
    # the second of the three is redis-py's own
    assert _accounts(store) == {"received": 3, "rejected:report-too-old": 1, "duplicate": 2}


def test_a_restart_between_two_tries_counts_once(store, tmp_path):
    """Server and store are killed after the write and before the answer: the second try is a duplicate."""
    write_files(tmp_path, registry_text())
    document = bucket_batch(9)
    with store_proxy(store.folder / "s.sock") as proxy, running_server(tmp_path, proxy.url) as server:
        proxy.spoil(Fault.SILENCE)
        assert server.post(document).status_code == 503
        os.killpg(server.process.pid, signal.SIGKILL)
        store.kill()
        store.start()
    again = _app(tmp_path, store.url, now=datetime.now(UTC))
    assert _post(again, document) == (202, {"accepted": 0, "duplicate": True, "rejected": []})
    assert counted(store) == {9: 1}
