"""Keys: parsing, comparing, rotating, never showing."""

import contextlib
import hmac
import json
import logging
import os
from datetime import UTC, date, datetime, timedelta

import pytest

from dither_server import auth
from dither_server.auth import (
    Forbidden,
    Keyring,
    Role,
    StoredKey,
    Unauthenticated,
    bearer_key,
    key_hash,
    keys_text,
    new_key,
    parse_keys,
)
from dither_server.quota import Quota
from dither_server.settings import ConfigurationError


@pytest.fixture(autouse=True)
def _look_always(monkeypatch):
    monkeypatch.setattr(auth, "LOOK_INTERVAL_S", 0.0)


def _line(key, role="ingest", name="app", **more):
    return {"name": name, "role": role, "sha256": key_hash(key)} | more


def _write(path, *lines):
    """Write the file anew, as an editor would, with another stamp."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"keys": list(lines)}))
    os.replace(fresh, path)


@pytest.fixture
def path(tmp_path):
    """A keys file with one key of each role."""
    found = tmp_path / "keys.json"
    _write(found, _line("one"), _line("eyes", "viewer", "analyst"), _line("boss", "admin", "people"))
    return found


def test_a_key_opens_its_own_role(path):
    """Each key is taken for its role."""
    ring = Keyring(path)
    assert ring.authorize("Bearer one", Role.INGEST).name == "app"
    assert ring.authorize("Bearer eyes", Role.VIEWER).name == "analyst"
    assert ring.authorize("bearer  boss ", Role.ADMIN).name == "people"


def test_an_admin_does_a_viewers_job_too(path):
    """Who may change things may see them; those that may see are listed together."""
    ring = Keyring(path)
    assert ring.authorize("Bearer boss", Role.VIEWER).name == "people"
    assert [key.name for key in ring.having(Role.VIEWER)] == ["analyst", "people"]
    assert [key.name for key in ring.having(Role.ADMIN)] == ["people"]
    assert [key.name for key in ring.having(Role.INGEST)] == ["app"]


def test_an_operator_of_an_older_file_is_an_admin(path):
    """A keys file from before there were viewers opens all that it opened."""
    _write(path, _line("boss", "operator"))
    assert Keyring(path).authorize("Bearer boss", Role.ADMIN).role is Role.ADMIN


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic one", "one", "Bearer " + "x" * 513])
def test_no_key_is_told_apart_from_a_wrong_one(path, header):
    """Without a bearer key the caller is told to present one."""
    with pytest.raises(Unauthenticated, match="required") as caught:
        Keyring(path).authorize(header, Role.INGEST)
    assert not caught.value.presented


@pytest.mark.parametrize("key", ["two", "One", "one x", "\udcff", "ä"])
def test_an_unknown_key_is_refused(path, key):
    """A key that no hash matches is refused, whatever characters it has."""
    with pytest.raises(Unauthenticated, match="not known") as caught:
        Keyring(path).authorize(f"Bearer {key}", Role.INGEST)
    assert caught.value.presented


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("one", Role.VIEWER),
        ("one", Role.ADMIN),
        ("eyes", Role.ADMIN),
        ("eyes", Role.INGEST),
        ("boss", Role.INGEST),
    ],
)
def test_a_key_does_not_open_the_other_role(path, key, role):
    """The ingest key, which lies open in every app, reads nothing; operators send nothing; a viewer is no admin."""
    with pytest.raises(Forbidden, match=role.value) as caught:
        Keyring(path).authorize(f"Bearer {key}", role)
    assert caught.value.needed is role


def test_a_key_is_added_and_withdrawn_without_a_restart(path, caplog):
    """A changed file is followed, and the log says how many keys there are and none of them."""
    ring = Keyring(path)
    _write(path, _line("two"))
    with caplog.at_level(logging.INFO):
        assert ring.authorize("Bearer two", Role.INGEST)
    with pytest.raises(Unauthenticated):
        ring.authorize("Bearer one", Role.INGEST)
    assert "1 keys" in caplog.text
    assert key_hash("two") not in caplog.text


@pytest.mark.parametrize("damage", ["spoil", "remove"])
def test_a_damaged_file_keeps_the_earlier_keys(path, caplog, damage):
    """A file that became unreadable locks nobody out, is reported once, and is followed again once it is good."""
    ring = Keyring(path)
    if damage == "spoil":
        path.write_text("{")
    else:
        path.unlink()
    for _ in range(3):
        assert ring.authorize("Bearer one", Role.INGEST)
    assert len(caplog.records) == 1
    _write(path, _line("two"))
    assert ring.authorize("Bearer two", Role.INGEST)


def test_a_key_works_through_its_last_day(path):
    """The day on which it expires is its last one in UTC; from then on it is in no list of keys in force."""
    now = datetime(2126, 11, 29, 23, 59, 59, tzinfo=UTC)
    _write(path, _line("one", expires="2126-11-29"), _line("boss", "admin", expires="2126-11-30"))
    ring = Keyring(path, lambda: now)
    assert ring.authorize("Bearer one", Role.INGEST).expires == date(2126, 11, 29)
    now += timedelta(seconds=1)
    with pytest.raises(Unauthenticated):
        ring.authorize("Bearer one", Role.INGEST)
    assert ring.having(Role.INGEST) == ()
    assert [key.name for key in ring.having(Role.VIEWER)] == ["app"]
    assert len(ring.keys) == 2


def test_unknown_expired_and_withdrawn_keys_are_refused_alike(path):
    """Whoever tries a key does not learn whether it ever was one, whatever its role was and what it is tried for."""
    _write(path, _line("old", expires="2026-01-01"), _line("gone"))
    ring = Keyring(path)
    _write(path, _line("old", "admin", expires="2026-01-01"))
    refusals = set()
    for key in ("old", "gone", "never"):
        for role in Role:
            with pytest.raises(Unauthenticated) as caught:
                ring.authorize(f"Bearer {key}", role)
            refusals.add((str(caught.value), caught.value.presented))
    assert len(refusals) == 1


@pytest.mark.parametrize("key", ["one", "boss", "guess"])
def test_every_stored_hash_is_compared(path, monkeypatch, key):
    """Where the key stands in the file, and whether it does, makes no difference to what is compared."""
    compared = []

    def compare(stored, presented):
        compared.append((stored, presented))
        return stored == presented

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with contextlib.suppress(Unauthenticated):
        Keyring(path).authorize(f"Bearer {key}", Role.VIEWER if key == "boss" else Role.INGEST)
    assert compared == [(key_hash(stored), key_hash(key)) for stored in ("one", "eyes", "boss")]


def test_a_keys_file_reads_back_as_it_was_written(path):
    """All that a key may say is kept; what it does not say is not made up."""
    keys = (
        StoredKey(
            "app", Role.INGEST, key_hash("a"), date(2026, 11, 29), date(2027, 11, 29), Quota(6_000, "minute")
        ),
        StoredKey("people", Role.ADMIN, key_hash("b")),
    )
    assert parse_keys(keys_text(keys).encode()) == keys
    assert json.loads(keys_text(keys))["keys"][1] == _line("b", "admin", "people")


def test_a_key_is_named_by_the_beginning_of_its_hash(path):
    """Twelve digits are enough to tell keys apart, and say nothing about the key."""
    assert StoredKey("app", Role.INGEST, key_hash("a")).key_id == key_hash("a")[:12]


def test_the_file_is_not_looked_at_for_every_request(path, monkeypatch):
    """Between two looks a change is not seen: looking costs as much as the rest of the check."""
    monkeypatch.setattr(auth, "LOOK_INTERVAL_S", 3_600.0)
    ring = Keyring(path)
    assert ring.authorize("Bearer one", Role.INGEST)
    _write(path, _line("two"))
    assert ring.authorize("Bearer one", Role.INGEST)


def test_a_missing_file_stops_the_start(tmp_path):
    """A keys file that cannot be read at the start is a configuration error."""
    with pytest.raises(ConfigurationError, match="keys file: cannot be read"):
        Keyring(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"{", "keys file"),
        (b"[]", "keys file"),
        (b"{}", "keys file"),
        (b"\xff", "keys file"),
        (b'{"keys": [1]}', "keys file"),
        (b'{"keys": [{"name": "a", "role": "ingest"}]}', r"keys\[0\]"),
        (b'{"keys": [{"name": "a", "role": "ingest", "sha256": "00", "x": "y"}]}', r"keys\[0\]"),
        (
            json.dumps({"keys": [_line("a"), _line("b", "owner")]}).encode(),
            r"keys\[1\].role.*ingest, viewer, admin",
        ),
        (json.dumps({"keys": [{**_line("a"), "sha256": "A" * 64}]}).encode(), r"keys\[0\].sha256"),
        (json.dumps({"keys": [_line("a"), _line("a", "admin")]}).encode(), "twice"),
        (json.dumps({"keys": [_line("a", expires="20261129")]}).encode(), r"keys\[0\].expires"),
        (json.dumps({"keys": [_line("a", expires="2026-02-30")]}).encode(), r"keys\[0\].expires"),
        (json.dumps({"keys": [_line("a", created="today")]}).encode(), r"keys\[0\].created"),
        (json.dumps({"keys": [_line("a", quota="many")]}).encode(), r"keys\[0\].quota.*6000/minute"),
        (json.dumps({"keys": [_line("a", "viewer", quota="6000/minute")]}).encode(), "for ingest keys only"),
    ],
)
def test_a_keys_file_is_read_strictly(text, where):
    """Every mistake in a keys file is an error that says where."""
    with pytest.raises(ConfigurationError, match=where):
        parse_keys(text)


def test_a_new_key_fits_its_hash_and_hides_in_a_repr():
    """A new key is random, matches its hash, and does not show in a repr."""
    made, other = new_key("ingest"), new_key("ingest")
    assert made.text.startswith("ingest_")
    assert made.text != other.text
    assert key_hash(bearer_key(f"Bearer {made.text}")) == made.sha256
    assert made.text not in repr(made)


@pytest.mark.parametrize("prefix", ["", "A", "a b", "a" * 17, "1a", "a_b"])
def test_a_prefix_is_a_short_word(prefix):
    """A prefix that could not be told apart from the random part is refused."""
    with pytest.raises(ValueError, match="prefix"):
        new_key(prefix)
