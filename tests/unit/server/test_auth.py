"""Keys: parsing, comparing, rotating, never showing."""

import json
import logging
import os

import pytest

from dither_server import auth
from dither_server.auth import (
    Forbidden,
    Keyring,
    Role,
    Unauthenticated,
    bearer_key,
    key_hash,
    new_key,
    parse_keys,
)
from dither_server.settings import ConfigurationError


@pytest.fixture(autouse=True)
def _look_always(monkeypatch):
    monkeypatch.setattr(auth, "LOOK_INTERVAL_S", 0.0)


def _line(key, role="ingest", name="app"):
    return {"name": name, "role": role, "sha256": key_hash(key)}


def _write(path, *lines):
    """Write the file anew, as an editor would, with another stamp."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"keys": list(lines)}))
    os.replace(fresh, path)


@pytest.fixture
def path(tmp_path):
    """A keys file with one key of each role."""
    found = tmp_path / "keys.json"
    _write(found, _line("one"), _line("boss", "operator", "people"))
    return found


def test_a_key_opens_its_own_role(path):
    """Each key is taken for its role."""
    ring = Keyring(path)
    assert ring.authorize("Bearer one", Role.INGEST).name == "app"
    assert ring.authorize("bearer  boss ", Role.OPERATOR).name == "people"


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


@pytest.mark.parametrize(("key", "role"), [("one", Role.OPERATOR), ("boss", Role.INGEST)])
def test_a_key_does_not_open_the_other_role(path, key, role):
    """The ingest key, which lies open in every app, reads nothing; the operator key sends nothing."""
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
        (json.dumps({"keys": [_line("a"), _line("b", "admin")]}).encode(), r"keys\[1\].role"),
        (json.dumps({"keys": [{**_line("a"), "sha256": "A" * 64}]}).encode(), r"keys\[0\].sha256"),
        (json.dumps({"keys": [_line("a"), _line("a", "operator")]}).encode(), "twice"),
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
