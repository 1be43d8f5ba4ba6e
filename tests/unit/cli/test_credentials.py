import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from dither_cli.credentials import ensure_credentials
from dither_cli.errors import StateDirError

URL = "http://127.0.0.1:8787"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Where the hashes and the plain keys lie."""
    return tmp_path / "keys.json", tmp_path / "env"


def test_the_first_start_makes_both_keys(files: tuple[Path, Path]) -> None:
    """The server's file holds hashes only; both files are private; the prefixes tell the keys apart."""
    made = ensure_credentials(*files, URL)
    assert made.ingest_key.startswith("dik_")
    assert made.operator_token.startswith("dat_")
    stored = {entry["role"]: entry["sha256"] for entry in json.loads(files[0].read_text())["keys"]}
    plain = {"ingest": made.ingest_key, "admin": made.operator_token}
    assert stored == {role: hashlib.sha256(key.encode()).hexdigest() for role, key in plain.items()}
    assert not any(key in files[0].read_text() for key in plain.values())
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600, 0o600]
    assert made.ingest_key not in repr(made)


def test_a_shell_can_source_the_env_file(files: tuple[Path, Path]) -> None:
    """The three variables are exported."""
    made = ensure_credentials(*files, URL)
    script = '. "$1" && sh -c \'echo "$DITHER_ENDPOINT $DITHER_INGEST_KEY $DITHER_OPERATOR_TOKEN"\''
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", files[1]], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [URL, made.ingest_key, made.operator_token]


def test_later_starts_keep_the_keys_and_tell_the_new_address(files: tuple[Path, Path]) -> None:
    """Apps in the field hold the ingest key: it must outlive a restart on another port."""
    first = ensure_credentials(*files, URL)
    assert ensure_credentials(*files, "http://127.0.0.1:9999") == first
    assert "export DITHER_ENDPOINT=http://127.0.0.1:9999\n" in files[1].read_text()


def test_a_lost_env_file_means_a_new_key_in_place_of_the_lost_one(files: tuple[Path, Path]) -> None:
    """A hash cannot be printed: the default keys are replaced, keys of other names stay."""
    first = ensure_credentials(*files, URL)
    document = json.loads(files[0].read_text())
    document["keys"].append({"name": "app", "role": "ingest", "sha256": "0" * 64})
    files[0].write_text(json.dumps(document))
    files[1].unlink()
    second = ensure_credentials(*files, URL)
    assert second.ingest_key != first.ingest_key
    entries = json.loads(files[0].read_text())["keys"]
    assert sorted((e["name"], e["role"]) for e in entries) == [
        ("app", "ingest"),
        ("serve-admin", "admin"),
        ("serve-ingest", "ingest"),
    ]


def test_a_key_that_was_revoked_is_replaced(files: tuple[Path, Path]) -> None:
    """Taking an entry out of the keys file ends that key, and only that one."""
    first = ensure_credentials(*files, URL)
    document = json.loads(files[0].read_text())
    document["keys"] = [entry for entry in document["keys"] if entry["role"] == "admin"]
    files[0].write_text(json.dumps(document))
    second = ensure_credentials(*files, URL)
    assert second.ingest_key != first.ingest_key
    assert second.operator_token == first.operator_token


def test_keys_of_an_earlier_version_stay(files: tuple[Path, Path]) -> None:
    """A directory from before there were admins: the operator's token opens all that it opened, under its old name."""
    made = ensure_credentials(*files, URL)
    entries = json.loads(files[0].read_text())["keys"]
    earlier = [
        {"name": "default", "role": role, "sha256": entry["sha256"]}
        for role, entry in zip(("ingest", "operator"), entries, strict=True)
    ]
    files[0].write_text(json.dumps({"keys": earlier}))
    assert ensure_credentials(*files, URL) == made
    assert json.loads(files[0].read_text()) == {"keys": earlier}
    files[1].unlink()
    ensure_credentials(*files, URL)
    assert [entry["name"] for entry in json.loads(files[0].read_text())["keys"]] == [
        "serve-ingest",
        "serve-admin",
    ]


def test_a_key_that_has_expired_is_replaced(files: tuple[Path, Path]) -> None:
    """What is printed works."""
    first = ensure_credentials(*files, URL)
    document = json.loads(files[0].read_text())
    for entry in document["keys"]:
        entry["expires"] = "2026-01-01"
    files[0].write_text(json.dumps(document))
    second = ensure_credentials(*files, URL)
    assert (second.ingest_key == first.ingest_key, second.operator_token == first.operator_token) == (
        False,
        False,
    )
    assert len(json.loads(files[0].read_text())["keys"]) == 2


def test_quota_and_expiry_set_by_hand_stay(files: tuple[Path, Path]) -> None:
    """A later start changes nothing about a key that works."""
    ensure_credentials(*files, URL)
    document = json.loads(files[0].read_text())
    document["keys"][0] |= {"quota": "5000/minute", "expires": "2199-12-31"}
    files[0].write_text(json.dumps(document))
    ensure_credentials(*files, URL)
    assert json.loads(files[0].read_text()) == document


def test_an_env_file_with_other_lines_is_read_all_the_same(files: tuple[Path, Path]) -> None:
    """A line that is no export, or has an open quote, means new keys at worst, never a crash."""
    first = ensure_credentials(*files, URL)
    files[1].write_text("# mine\n" + files[1].read_text())
    assert ensure_credentials(*files, URL) == first
    files[1].write_text("export DITHER_INGEST_KEY='\n")
    assert ensure_credentials(*files, URL) != first


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"keys": [1]}', '{"keys": [{"name": "default"}]}', '{"other": []}']
)
def test_a_damaged_keys_file_is_refused_rather_than_replaced(files: tuple[Path, Path], text: str) -> None:
    """It may hold keys that apps in the field use."""
    files[0].write_text(text)
    with pytest.raises(StateDirError, match=r"keys\.json is damaged"):
        ensure_credentials(*files, URL)
    assert files[0].read_text() == text
