"""What `Service` gives its children, before any of them is started."""

from pathlib import Path

from dither_cli.service import Service, ServiceOptions


def _ingest_environ(state_dir: Path, store_url: str | None) -> dict[str, str]:
    service = Service(ServiceOptions(state_dir, store_url=store_url, environ={"PATH": "/usr/bin"}))
    try:
        (spec,) = (child.spec for child in service._supervisor._children if child.spec.name == "ingest")
        return dict(spec.environ)
    finally:
        service.stop()


def test_the_server_watches_the_disk_of_an_embedded_store(tmp_path: Path) -> None:
    """The folder of the embedded store is this machine's, so its free space is looked at."""
    assert _ingest_environ(tmp_path, None)["DITHER_STORE_PATH"] == str(tmp_path / "store")


def test_the_disk_of_another_store_is_left_to_its_operator(tmp_path: Path) -> None:
    """Nothing is known about the disk of a store by URL."""
    assert "DITHER_STORE_PATH" not in _ingest_environ(tmp_path, "redis://store.invalid")
