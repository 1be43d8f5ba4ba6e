"""The secret that signs sessions: made once, the same for all, and needed beside the keys file."""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_protocol.storage import LAYOUT, META_KEY, SESSIONS_KEY
from dither_server import auth
from dither_server.app import create_app
from dither_server.dashboard.session_secret import LOOK_INTERVAL_S, SIGN_IN_WAIT_S, SessionSecret
from dither_server.dashboard.sessions import SESSION_S, new_cookie
from dither_server.store import Store
from dither_server.store_rules import StoreRefused, StoreUnavailable
from support.dashboard import read_page
from support.server import NOW, OPERATOR_KEY, Clock, registry, settings
from support.store import Store as Valkey
from support.store import running_store

COOKIE = "dither_session"


class _Seconds:
    """Monotonic time that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_by(self) -> None:
        """Until the secret is looked at again."""
        self.now_s += LOOK_INTERVAL_S


def _secret(valkey: Valkey, folder: Path, seconds: _Seconds) -> SessionSecret:
    """What another process would have."""
    return SessionSecret(Store(settings(folder, valkey.url), registry()), seconds)


def _sign_in(client: FlaskClient) -> str:
    assert client.get(f"/login?token={OPERATOR_KEY}").status_code == 303
    found = client.get_cookie(COOKIE)
    assert found is not None
    return found.value


def test_it_is_256_random_bits_that_outlive_a_process(store: Valkey, tmp_path: Path) -> None:
    """Whoever asks first makes it; all others find the same, and each store has its own."""
    seconds = _Seconds()
    first = _secret(store, tmp_path, seconds)()
    assert len(first) == 32
    assert first == _secret(store, tmp_path, seconds)()
    with store.client() as client:
        assert client.get(SESSIONS_KEY) == first.hex().encode()
        assert client.ttl(SESSIONS_KEY) == -1
        client.flushall()
    assert _secret(store, tmp_path, seconds)() != first


def test_of_two_that_make_one_at_once_both_have_the_same(store: Valkey, tmp_path: Path) -> None:
    """Between looking and making another process made one: its secret is everybody's."""
    theirs = "ab" * 32

    class Overtaken(Store):
        """After it was read for the first time somebody else writes."""

        def read(self, reader: Callable[..., Any]) -> Any:
            """What there was before that."""
            found = super().read(reader)
            with store.client() as client:
                client.set(SESSIONS_KEY, theirs, nx=True)
            return found

    secret = SessionSecret(Overtaken(settings(tmp_path, store.url), registry()))
    assert secret() == bytes.fromhex(theirs)
    with store.client(decode=True) as client:
        assert client.get(SESSIONS_KEY) == theirs


def test_all_agree_within_a_second_when_it_is_deleted(store: Valkey, tmp_path: Path) -> None:
    """Until then a process keeps what it has read, afterwards both have the new one."""
    seconds = _Seconds()
    secrets = [_secret(store, tmp_path, seconds) for _ in range(2)]
    before = [secret() for secret in secrets]
    with store.client() as client:
        client.delete(SESSIONS_KEY)
    assert [secret() for secret in secrets] == before
    seconds.pass_by()
    after = [secret() for secret in secrets]
    assert after[0] == after[1] != before[0]


def test_it_is_kept_while_the_store_is_away(tmp_path: Path) -> None:
    """A process that has read it goes on with it; one that has not says what is wrong, and recovers."""
    seconds = _Seconds()
    with running_store() as valkey:
        known, late = (_secret(valkey, tmp_path, seconds) for _ in range(2))
        before = known()
        valkey.kill()
        seconds.pass_by()
        assert known() == before
        with pytest.raises(StoreUnavailable):
            late()
        valkey.start()
        assert late() == before


def test_it_is_read_when_the_server_starts(store: Valkey, tmp_path: Path) -> None:
    """So the first person who signs in waits for no write."""
    create_app(settings(tmp_path, store.url))
    with store.client() as client:
        assert client.exists(SESSIONS_KEY)


def test_what_is_wrong_with_it_does_not_stop_the_start(
    store: Valkey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Devices report; the log says what people meet when they sign in."""
    with store.client() as client:
        client.lpush(SESSIONS_KEY, "no text")
    app = create_app(settings(tmp_path, store.url)).test_client()
    assert app.get("/readyz").status_code == 200
    assert "WRONGTYPE" in caplog.text
    assert app.get(f"/login?token={OPERATOR_KEY}").status_code == 500


def test_who_signs_in_waits_for_a_store_that_is_back_in_a_moment(tmp_path: Path) -> None:
    """As long as is said, and no longer."""
    seconds = _Seconds()
    slept: list[float] = []
    with running_store() as valkey:
        valkey.kill()

        def sleep(duration_s: float) -> None:
            slept.append(duration_s)
            seconds.now_s += duration_s
            if len(slept) == 20:
                valkey.start()

        store = Store(settings(tmp_path, valkey.url), registry())
        assert len(SessionSecret(store, seconds, sleep).wait()) == 32
        assert len(slept) == 20
        valkey.kill()
        slept += [0.0] * 100
        with pytest.raises(StoreUnavailable):
            SessionSecret(store, seconds, sleep).wait()
        assert sum(slept[120:]) == pytest.approx(SIGN_IN_WAIT_S, abs=0.2)


def test_a_store_that_takes_no_writes_locks_nobody_out(tmp_path: Path) -> None:
    """Where memory is full the secret is read all the same."""
    with running_store(maxmemory="20mb") as valkey, valkey.client() as client:
        before = _secret(valkey, tmp_path, _Seconds())()
        late = _secret(valkey, tmp_path, _Seconds())
        client.config_set("maxmemory", "1kb")
        with pytest.raises(Exception, match="used memory"):
            client.set("full", "x")
        assert late() == before


@pytest.mark.parametrize("damaged", ["", "ab" * 31, "AB" * 32, "ab" * 32 + "\n", "xy" * 32])
def test_anything_else_under_its_key_is_refused(
    store: Valkey, tmp_path: Path, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A secret that is too short, or none, signs nothing; the log names the key."""
    with store.client() as client:
        client.set(SESSIONS_KEY, damaged)
    with pytest.raises(StoreRefused, match=SESSIONS_KEY):
        _secret(store, tmp_path, _Seconds())()
    assert SESSIONS_KEY in caplog.text


def test_a_store_that_is_not_fit_is_not_written_to(store: Valkey, tmp_path: Path) -> None:
    """It may be somebody else's."""
    with store.client() as client:
        client.hset(META_KEY, mapping={"partitions": 3, "layout": LAYOUT})
        with pytest.raises(StoreRefused):
            _secret(store, tmp_path, _Seconds())()
        assert client.get(SESSIONS_KEY) is None


def test_the_keys_file_alone_makes_no_cookie(client: FlaskClient, store: Valkey) -> None:
    """Whoever has read the keys file, or the store, has half of what a cookie is signed with."""
    hash_ = auth.key_hash(OPERATOR_KEY)
    key = auth.StoredKey("people", auth.Role.ADMIN, hash_)
    expires = int(NOW.timestamp()) + SESSION_S
    name = urlsafe_b64encode(b"people").decode()
    signed = f"session|{name}|{expires}".encode()
    with store.client() as redis:
        _sign_in(client)
        secret = bytes.fromhex(redis.get(SESSIONS_KEY).decode())
    half = auth.StoredKey("people", auth.Role.ADMIN, "00" * 32)
    halves = [
        new_cookie(key, b"", NOW.timestamp()),
        new_cookie(key, bytes(32), NOW.timestamp()),
        new_cookie(half, secret, NOW.timestamp()),
        *(
            f"{name}|{expires}|{hmac.digest(guess, signed, 'sha256').hex()}"
            for guess in (bytes.fromhex(hash_), secret, b"", hmac.digest(b"", bytes.fromhex(hash_), "sha256"))
        ),
    ]
    for cookie in halves:
        client.set_cookie(COOKIE, cookie)
        assert client.get("/").status_code == 303, cookie
    client.set_cookie(COOKIE, new_cookie(key, secret, NOW.timestamp()))
    assert client.get("/").status_code == 200


def test_no_part_of_the_secret_leaves(client: FlaskClient, store: Valkey) -> None:
    """Neither cookie nor page has it."""
    cookie = _sign_in(client)
    with store.client() as redis:
        secret = redis.get(SESSIONS_KEY).decode()
    assert re.fullmatch("[0-9a-f]{64}", secret)
    for text in (cookie, client.get("/").text, client.get("/health").text):
        assert secret not in text


def test_without_store_and_secret_a_page_says_so_and_recovers(tmp_path: Path, clock: Clock) -> None:
    """A process that started while the store was away: 503 for whoever has a cookie, the form for others."""
    with running_store() as valkey:
        cookie = _sign_in(create_app(settings(tmp_path, valkey.url), clock=clock).test_client())
        valkey.kill()
        late = create_app(settings(tmp_path, valkey.url), clock=clock).test_client()
        assert late.get("/health").status_code == 303
        late.set_cookie(COOKIE, cookie)
        for path in ("/", "/health", "/privacy", f"/login?token={OPERATOR_KEY}"):
            answer = late.get(path)
            assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
            assert "store cannot be read" in read_page(answer.text).root.one("h1").text
        assert late.get("/live/").json["type"] == "store-unavailable"
        assert late.get("/login").status_code == 200
        valkey.start()
        assert late.get("/health").status_code == 200
