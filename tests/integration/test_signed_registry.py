"""From `dither registry sign` through a real server to devices that pin a key: rollback, rotation, a wrong server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from dither_cli.main import cli
from dither_client import Client, RecordStatus
from support.clients import wait_until
from support.server import INGEST_KEY, REGISTRY, Server, running_server, write_files
from support.store import running_store

_OTHER_WORDS = REGISTRY.replace("Asked once", "Asked just once")


class Operator:
    """Whoever holds the keys, and signs registries with the real commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _run(self, *arguments: object) -> str:
        result = CliRunner().invoke(cli, ["registry", *map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    def key(self, name: str) -> str:
        """Make a key in a folder of this name; its public half."""
        return self._run("keygen", "--out", self.folder / name)

    def sign(self, text: str, revision: int, *names: str) -> str:
        """The signed file of a registry, by the keys of these names."""
        source, out = self.folder / "registry.toml", self.folder / f"{revision}.json"
        source.write_text(text)
        keys = [part for name in names for part in ("--key", next((self.folder / name).glob("*.pem")))]
        self._run("sign", source, "--out", out, "--revision", revision, *keys)
        return out.read_text()


@contextmanager
def _serving(folder: Path, registry_text: str, store_url: str) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    write_files(folder, registry_text)
    with running_server(folder, store_url) as server:
        yield server


@contextmanager
def _device(server: Server, state: Path, *keys: str) -> Iterator[Client]:
    """One run of an app, which asks for the registry at once."""
    client = Client(
        server.url, ingest_key=INGEST_KEY, state_dir=state, registry_keys=keys, fetch_registry=True,
        delay_s=0,
    )  # fmt: skip
    client._source.next_fetch_at = 0.0
    client._sender.wake()
    try:
        yield client
    finally:
        client.shutdown(30)


def _first_use(client: Client) -> str | None:
    """What the device believes that ``first_use`` asks; it changes from revision to revision."""
    registry = client._source.current
    return None if registry is None else registry.metric("first_use").description


def _refused(client: Client, reason: str) -> int:
    return client.stats().get(f"registry_refused:{reason}", 0)


def test_devices_follow_the_key_and_not_the_server(tmp_path: Path) -> None:
    """A signed registry is used and answered; an older one on a fresh store, and an unsigned one, change nothing."""
    operator = Operator(tmp_path)
    public = operator.key("first")
    second, third = operator.sign(_OTHER_WORDS, 2, "first"), operator.sign(REGISTRY, 3, "first")
    state = tmp_path / "state"
    with running_store() as store:
        with _serving(tmp_path / "a", second, store.url) as server, _device(server, state, public) as client:
            wait_until(lambda: _first_use(client) == "Asked just once")
            assert client.record("dark_mode", True).status is RecordStatus.QUEUED
            assert client.flush(30).sent == 1
            assert not any(name.startswith("registry_refused") for name in client.stats())
        with _serving(tmp_path / "a", third, store.url) as server, _device(server, state, public) as client:
            wait_until(lambda: _first_use(client) == "Asked once")
    with running_store() as fresh:  # whoever took the server over gives it a store that knows of nothing
        with _serving(tmp_path / "b", second, fresh.url) as server, _device(server, state, public) as client:
            wait_until(lambda: _refused(client, "rolled_back"))
            assert _first_use(client) == "Asked once"
        changed = REGISTRY.replace("Asked once", "Changed by the server")
        with _serving(tmp_path / "c", changed, fresh.url) as server:
            with _device(server, state, public) as client:
                wait_until(lambda: _refused(client, "unsigned"))
                assert _first_use(client) == "Asked once"
                assert client.record("first_use", True).status is RecordStatus.QUEUED
            with _device(server, tmp_path / "trusting") as client:  # an app that pins nothing goes on as ever
                wait_until(lambda: _first_use(client) == "Changed by the server")


def test_keys_are_rotated_and_a_lost_one_is_replaced(tmp_path: Path) -> None:
    """Signed by both, old and new apps follow; by the new one alone, old apps keep what they have until an update."""
    operator = Operator(tmp_path)
    old, new = operator.key("old"), operator.key("new")
    both, alone = operator.sign(REGISTRY, 5, "old", "new"), operator.sign(_OTHER_WORDS, 6, "new")
    old_state, new_state = tmp_path / "old-state", tmp_path / "new-state"
    with running_store() as store:
        with _serving(tmp_path / "a", both, store.url) as server:
            for state, keys in ((old_state, (old,)), (new_state, (old, new))):
                with _device(server, state, *keys) as client:
                    wait_until(lambda c=client: _first_use(c) == "Asked once")
        with _serving(tmp_path / "a", alone, store.url) as server:
            with _device(server, new_state, old, new) as client:
                wait_until(lambda: _first_use(client) == "Asked just once")
            with _device(server, old_state, old) as client:
                wait_until(lambda: _refused(client, "untrusted"))
                assert _first_use(client) == "Asked once"
                assert client.record("dark_mode", True).status is RecordStatus.QUEUED
                assert client.flush(30).sent == 1  # what it asks is still accepted
            with _device(server, old_state, new) as client:  # the app was updated
                wait_until(lambda: _first_use(client) == "Asked just once")


def test_an_app_without_pinned_keys_reads_the_plain_form_of_a_signed_registry(tmp_path: Path) -> None:
    """Old apps keep working when the operator begins to sign."""
    operator = Operator(tmp_path)
    operator.key("first")
    with (
        running_store() as store,
        _serving(tmp_path / "a", operator.sign(REGISTRY, 1, "first"), store.url) as server,
        _device(server, tmp_path / "state") as client,
    ):
        wait_until(lambda: _first_use(client) == "Asked once")
        assert client.record("dark_mode", True).status is RecordStatus.QUEUED
        assert client.flush(30).sent == 1
