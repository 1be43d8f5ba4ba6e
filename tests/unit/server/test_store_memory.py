"""What the store says of its memory, on real stores, and how the health page shows it."""

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from dither_server.app import create_app
from dither_server.disk_floor import DiskFloor
from dither_server.store import Store
from dither_server.store_memory import Memory, read_memory
from support.dashboard import Element, read_page
from support.server import OPERATOR_KEY, registry, settings
from support.store import Store as Valkey
from support.store import running_store


def _store(folder: Path, url: str) -> Store:
    return Store(settings(folder, url, store_durable=True), registry())


def _shown(folder: Path, url: str, **changes: object) -> tuple[FlaskClient, Element]:
    client = create_app(settings(folder, url, store_durable=True, **changes)).test_client()
    client.get(f"/login?token={OPERATOR_KEY}")
    answer = client.get("/health")
    assert answer.status_code == 200
    return client, read_page(answer.text).root.one("section", id="store")


def test_memory_limit_and_policy_are_the_stores_own(store: Valkey, tmp_path: Path) -> None:
    """As INFO has them, of the one server; without a limit there is no share of it."""
    ((name, found),) = _store(tmp_path, store.url).memory().items()
    with store.client() as client:
        limit = int(client.config_get("maxmemory")["maxmemory"])
    assert (name, found is not None) == ("store", True)
    assert found is not None
    assert (found.limit_bytes, found.policy) == (limit, "noeviction")
    assert 500_000 < found.used_bytes < limit
    assert found.used_share == found.used_bytes / limit
    assert Memory(1, None, "noeviction").used_share is None


@pytest.mark.parametrize("how", ["renamed", "forbidden"])
def test_a_hidden_info_is_said_and_breaks_nothing(tmp_path: Path, how: str) -> None:
    """Renamed away or forbidden: the page says that it is hidden, and has everything else."""
    options = {"renamed": {"rename_command": "INFO HIDDEN"}, "forbidden": {}}[how]
    with running_store(**options) as hidden:
        url = hidden.url
        if how == "forbidden":
            with hidden.client() as client:
                client.acl_setuser(
                    "app", enabled=True, passwords=["+pw"], keys="*", commands=["+@all", "-info"]
                )
            url = f"{hidden.url}?username=app&password=pw"
        assert _store(tmp_path, url).memory() == {"store": None}
        _, section = _shown(tmp_path, url)
        assert "hidden the store does not answer INFO" in section.text
        assert "High-water mark" in section.text


class _Proxy:
    """Says so much of a memory."""

    def __init__(self, **members: object) -> None:
        self._members = members

    def info(self, section: str) -> dict[str, object]:
        return self._members if section == "memory" else {}


def test_a_master_that_says_less_is_as_good_as_silent() -> None:
    """Members that are missing are not guessed, peaks and other numbers are left alone; 0 is no limit."""
    whole = _Proxy(used_memory=5, used_memory_peak=9, maxmemory=0, maxmemory_policy="allkeys-lru")
    found = read_memory({"a": _Proxy(used_memory=5), "b": whole}, lambda ask: ask())
    assert found == {"a": None, "b": Memory(5, None, "allkeys-lru")}


def test_the_page_has_memory_backlog_and_disk(store: Valkey, tmp_path: Path) -> None:
    """Used and limit, policy, backlog beside the mark; the disk where its folder is known."""
    _, section = _shown(tmp_path, store.url)
    assert "noeviction" in section.text
    assert "Disk free unknown no folder of" in section.text
    _, section = _shown(tmp_path, store.url, store_path=tmp_path, min_free_bytes=1 << 20)
    assert "refuses below 1.0 MiB" in section.text.replace("\u202f", " ")


def test_free_space_is_that_of_the_folder(tmp_path: Path) -> None:
    """None without a folder, or where it is gone."""
    assert (DiskFloor(tmp_path, 0).free_bytes() or 0) > 0
    assert DiskFloor(tmp_path / "gone", 0).free_bytes() is None
    assert DiskFloor(None, 0).free_bytes() is None
