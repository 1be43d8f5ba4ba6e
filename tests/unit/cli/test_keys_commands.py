"""``dither keys``: as a person and as a script use it, on real files, and on a running keyring."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.credentials import ensure_credentials
from dither_cli.exit_codes import ExitCode
from dither_cli.keys_file import KeysFile
from dither_cli.main import cli
from dither_server import auth
from dither_server.auth import Keyring, Role, Unauthenticated, key_hash
from dither_server.quota import Quota
from dither_server.settings import ConfigurationError

TODAY = datetime.now(UTC).date()
TOMORROW = TODAY + timedelta(days=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the keys file is to be; there is none yet."""
    return tmp_path / "keys.json"


def run(file: Path, *arguments: str, answer: str | None = None, **env: str) -> Result:
    """`dither keys ... --keys-file FILE`."""
    command = ["keys", *arguments, "--keys-file", str(file)]
    return CliRunner(env={"COLUMNS": "120"} | env).invoke(cli, command, input=answer)


def create(file: Path, name: str, role: str = "ingest", *options: str) -> str:
    """The key that a command has made."""
    result = run(file, "create", name, "--role", role, *options)
    assert result.exit_code == ExitCode.OK, result.output
    return result.stdout.removesuffix("\n")


def test_a_key_is_printed_once_and_its_hash_is_kept(file: Path) -> None:
    """Standard output is the key alone, so that a script can take it; the words about it stand on standard error."""
    result = run(file, "create", "app", "--role", "ingest")
    key = result.stdout.removesuffix("\n")
    assert key.startswith("dik_")
    assert len(key) == 4 + 43
    assert "\n" not in key
    assert "only time" in result.stderr
    assert key not in result.stderr
    (stored,) = KeysFile(file).read()
    assert (stored.name, stored.role, stored.sha256, stored.created) == (
        "app",
        Role.INGEST,
        key_hash(key),
        TODAY,
    )
    assert key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(("role", "prefix"), [("ingest", "dik_"), ("viewer", "dvt_"), ("admin", "dat_")])
def test_a_key_says_what_it_is_for(file: Path, role: str, prefix: str) -> None:
    """Who finds one knows what it opens, and a server takes it for just that."""
    key = create(file, "somebody", role)
    assert key.startswith(prefix)
    assert Keyring(file).authorize(f"Bearer {key}", Role(role)).name == "somebody"


def test_quota_and_expiry_are_kept(file: Path) -> None:
    """What was asked for stands in the file."""
    create(file, "app", "ingest", "--quota", "6000/minute", "--expires", str(TOMORROW))
    (stored,) = KeysFile(file).read()
    assert (stored.quota, stored.expires) == (Quota(6_000, "minute"), TOMORROW)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["app"], "Missing option '--role'"),
        (["app", "--role", "operator"], "'operator' is not one of"),
        (["", "--role", "ingest"], "letters, digits"),
        (["-x", "--role", "ingest"], "No such option"),
        (["a b", "--role", "ingest"], "letters, digits"),
        (["a" * 65, "--role", "ingest"], "letters, digits"),
        (["café", "--role", "ingest"], "letters, digits"),
        (["app", "--role", "ingest", "--quota", "100"], "6000/minute"),
        (["app", "--role", "ingest", "--quota", "100/day"], "1,000 reports"),
        (["app", "--role", "viewer", "--quota", "6000/day"], "for ingest keys"),
        (["app", "--role", "ingest", "--expires", "soon"], "does not match the format"),
        (["app", "--role", "ingest", "--expires", "2026-01-01"], "this day is over"),
    ],
)
def test_a_wrong_argument_makes_nothing(file: Path, arguments: list[str], says: str) -> None:
    """It is a usage error that says what would be right."""
    result = run(file, "create", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert says in " ".join(result.output.replace("│", " ").split())
    assert not file.exists()


def test_a_name_is_taken_once(file: Path) -> None:
    """Names tell keys apart, whatever their roles; the file stays as it is."""
    create(file, "app")
    before = file.read_bytes()
    result = run(file, "create", "app", "--role", "viewer")
    assert result.exit_code == ExitCode.FAILED
    assert "there is a key 'app' already" in result.stderr
    assert result.stdout == ""
    assert file.read_bytes() == before


def test_the_list_shows_everything_but_the_keys(file: Path) -> None:
    """Names, roles, days, quotas, and the first digits of the hashes."""
    keys = [create(file, "app", "ingest", "--quota", "6000/minute", "--expires", str(TOMORROW))]
    keys.append(create(file, "boss", "admin"))
    with KeysFile(file).changing() as known:
        known.append(
            auth.StoredKey("old[red]", Role.VIEWER, key_hash("x"), expires=TODAY - timedelta(days=1))
        )
    output = run(file, "list").output
    for words in (
        "app",
        "ingest",
        "6000/minute",
        str(TOMORROW),
        "boss",
        "admin",
        "never",
        "old[red]",
        "(expired)",
    ):
        assert words in output, words
    document = json.loads(run(file, "list", "--json").output)
    assert document["keys"][0] == {
        "name": "app", "role": "ingest", "created": str(TODAY), "expires": str(TOMORROW), "expired": False,
        "quota": "6000/minute", "id": key_hash(keys[0])[:12],
    }  # fmt: skip
    assert [each["expired"] for each in document["keys"]] == [False, False, True]
    for key in keys:
        assert key_hash(key)[:12] in output
        assert key_hash(key)[:13] not in output + json.dumps(document)
        assert key not in output


def test_a_revoked_key_opens_nothing_and_the_others_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that runs follows the file: rotation is one key made, and later one revoked."""
    monkeypatch.setattr(auth, "LOOK_INTERVAL_S", 0.0)
    old, boss = create(file, "app-1"), create(file, "boss", "admin")
    ring = Keyring(file)
    new = create(file, "app-2")
    for key in (old, new):
        ring.authorize(f"Bearer {key}", Role.INGEST)
    result = run(file, "revoke", "app-1")
    assert result.exit_code == ExitCode.OK
    assert "revoked the ingest key 'app-1'" in result.stderr
    with pytest.raises(Unauthenticated):
        ring.authorize(f"Bearer {old}", Role.INGEST)
    ring.authorize(f"Bearer {new}", Role.INGEST)
    ring.authorize(f"Bearer {boss}", Role.ADMIN)


def test_an_unknown_name_is_no_success(file: Path) -> None:
    """A slip must not look as if the key were gone; the names that there are help."""
    create(file, "app")
    create(file, "web")
    result = run(file, "revoke", "ap")
    assert result.exit_code == ExitCode.FAILED
    assert "there is no key 'ap'; there are: app, web" in result.stderr
    assert "there is no key 'app' of role admin" in run(file, "revoke", "app", "--role", "admin").stderr


def test_one_name_of_two_roles_needs_the_role(tmp_path: Path) -> None:
    """Files made by hand may use a name twice: which key goes is never a guess."""
    file = tmp_path / "keys.json"
    entries = [{"name": "default", "role": role, "sha256": key_hash(role)} for role in ("ingest", "operator")]
    file.write_text(json.dumps({"keys": entries}))
    result = run(file, "revoke", "default")
    assert result.exit_code == ExitCode.FAILED
    assert "add --role admin or --role ingest" in result.stderr
    assert run(file, "revoke", "default", "--role", "ingest").exit_code == ExitCode.OK
    assert [key.role for key in KeysFile(file).read()] == [Role.ADMIN]


def test_the_last_admin_goes_only_when_that_is_meant(file: Path) -> None:
    """Without an admin in force nobody could put things right but at the file; one that has expired is none."""
    create(file, "boss", "admin")
    create(file, "app")
    with KeysFile(file).changing() as known:
        known.append(auth.StoredKey("old", Role.ADMIN, key_hash("x"), expires=TODAY - timedelta(days=1)))
    refused = run(file, "revoke", "boss", answer="n\n")
    assert refused.exit_code == ExitCode.FAILED
    assert "This is the last admin" in refused.stderr
    assert len(KeysFile(file).read()) == 3
    assert run(file, "revoke", "app").exit_code == ExitCode.OK
    assert run(file, "revoke", "boss", "--yes").exit_code == ExitCode.OK
    assert [key.name for key in KeysFile(file).read()] == ["old"]


def test_mode_and_owner_stay(file: Path) -> None:
    """A file that another user's server reads can still be read by it after a change."""
    create(file, "app")
    file.chmod(0o644)
    create(file, "web")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    if os.geteuid() == 0:
        os.chown(file, 10_001, 10_001)
        create(file, "third")
        assert (file.stat().st_uid, file.stat().st_gid) == (10_001, 10_001)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Deployments link to files; what the link leads to is changed."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "keys.json"
    link.symlink_to(tmp_path / "real" / "keys.json")
    create(link, "app")
    assert link.is_symlink()
    assert len(KeysFile(tmp_path / "real" / "keys.json").read()) == 1


@pytest.mark.parametrize("command", [["list"], ["create", "app", "--role", "ingest"], ["revoke", "app"]])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "must be JSON"),
        ('{"keys": [{"name": "a", "role": "king", "sha256": ""}]}', "keys[0].role: must be one of"),
    ],
)
def test_a_damaged_file_is_said_and_left_alone(file: Path, command: list[str], text: str, says: str) -> None:
    """It may hold the keys of apps in the field."""
    file.write_text(text)
    result = run(file, *command)
    assert result.exit_code == ExitCode.FAILED
    assert f"{file}: {says}" in result.stderr
    assert file.read_text() == text


def test_a_missing_file_or_folder_is_said(tmp_path: Path) -> None:
    """One can be made in a folder that is there; where there is none, or no file to read, the path is named."""
    missing = run(tmp_path / "no.json", "list")
    assert (missing.exit_code, "no.json: No such file" in missing.stderr) == (ExitCode.FAILED, True)
    nowhere = run(tmp_path / "none" / "keys.json", "create", "app", "--role", "ingest")
    assert (nowhere.exit_code, "none: No such file" in nowhere.stderr) == (ExitCode.FAILED, True)
    assert nowhere.stdout == ""


def test_a_key_that_cannot_be_shown_is_not_made(file: Path) -> None:
    """Where the output goes nowhere, the file is as it was."""
    command = [sys.executable, "-c", "from dither_cli.entry import main; main()", "keys", "create", "app"]
    command += ["--role", "ingest", "--keys-file", str(file)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert done.returncode == ExitCode.FAILED
    assert "No space left" in done.stderr
    assert not file.exists()


def test_commands_at_once_lose_nothing(file: Path) -> None:
    """Eight processes at a time, each makes a key: every one is there."""
    code = (
        "import sys; from pathlib import Path; from dither_cli.keys_file import KeysFile\n"
        "from dither_server.auth import Role, StoredKey, key_hash\n"
        "for n in range(5):\n"
        "    with KeysFile(Path(sys.argv[1])).changing() as keys:\n"
        "        name = f'{sys.argv[2]}-{n}'\n"
        "        keys.append(StoredKey(name, Role.INGEST, key_hash(name)))\n"
    )

    def process(number: int) -> int:
        command = [sys.executable, "-c", code, str(file), str(number)]
        return subprocess.run(command, timeout=120, check=False).returncode

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(process, range(8))) == {0}
    assert len(KeysFile(file).read()) == 40
    assert os.listdir(file.parent) == ["keys.json"]


def test_a_change_that_fails_leaves_the_old_file(file: Path) -> None:
    """An exception inside, and keys that no server would take."""
    create(file, "app")
    before = file.read_bytes()
    with pytest.raises(IndexError), KeysFile(file).changing() as known:
        known.extend([known.pop() for _ in range(2)])  # the second one is not there
    with pytest.raises(ConfigurationError, match="twice"), KeysFile(file).changing() as known:
        known.append(known[0])
    assert file.read_bytes() == before


def test_the_file_is_that_of_a_state_directory(tmp_path: Path) -> None:
    """Without --keys-file it is that of the serve on this machine; a folder without one is not made into one."""
    runner = CliRunner(env={"DITHER_HOME": str(tmp_path), "DITHER_KEYS_FILE": None, "COLUMNS": "120"})
    result = runner.invoke(cli, ["keys", "create", "app", "--role", "ingest"])
    assert result.exit_code == ExitCode.STATE_DIR
    assert f"no dither serve was started in {tmp_path}" in result.stderr
    assert os.listdir(tmp_path) == []
    ensure_credentials(tmp_path / "keys.json", tmp_path / "env", "http://127.0.0.1:8787")
    assert runner.invoke(cli, ["keys", "create", "app", "--role", "ingest"]).exit_code == ExitCode.OK
    listed = json.loads(runner.invoke(cli, ["keys", "list", "--json"]).output)["keys"]
    assert [key["name"] for key in listed] == ["serve-ingest", "serve-admin", "app"]


def test_what_is_said_on_the_line_goes_before_the_environment(tmp_path: Path, file: Path) -> None:
    """--state-dir beats DITHER_KEYS_FILE; both options at once contradict each other."""
    folder = tmp_path / "state"
    folder.mkdir()
    ensure_credentials(folder / "keys.json", folder / "env", "http://127.0.0.1:8787")
    runner = CliRunner(env={"DITHER_KEYS_FILE": str(file), "COLUMNS": "120"})
    assert runner.invoke(cli, ["keys", "create", "app", "--role", "ingest"]).exit_code == ExitCode.OK
    assert [key.name for key in KeysFile(file).read()] == ["app"]
    listed = runner.invoke(cli, ["keys", "list", "--state-dir", str(folder), "--json"])
    assert [key["name"] for key in json.loads(listed.output)["keys"]] == ["serve-ingest", "serve-admin"]
    both = run(file, "list", "--state-dir", str(folder))
    assert (both.exit_code, "not both" in both.output) == (ExitCode.USAGE, True)
