"""The service: files that cannot be read stop the start with one clear line."""

import pytest

from dither_server import app
from dither_server.service import build_service, utc_now
from dither_server.settings import ConfigurationError
from support.server import settings

URL = "unix:///nowhere.sock"


def test_the_clock_knows_its_zone():
    """Times are aware, and in UTC."""
    assert utc_now().utcoffset().total_seconds() == 0


def test_a_missing_registry_is_named(tmp_path):
    """A registry that cannot be read is a configuration error."""
    found = settings(tmp_path, URL)
    found.registry.unlink()
    with pytest.raises(ConfigurationError, match="registry: cannot be read"):
        build_service(found)


def test_a_wrong_registry_is_named_by_its_key(tmp_path):
    """A registry that breaks a rule says which key is wrong."""
    with pytest.raises(ConfigurationError, match=r"registry: schema: "):
        build_service(settings(tmp_path, URL, registry_text="schema = 9"))


def test_a_wrong_environment_ends_the_process_with_one_line(monkeypatch, capsys):
    """Gunicorn's master stops on status 4, and a person reads which variable is wrong."""
    monkeypatch.delenv("DITHER_STORE_URL", raising=False)
    with pytest.raises(SystemExit) as caught:
        app.create_app_from_env()
    assert caught.value.code == 4
    assert capsys.readouterr().err == "dither: DITHER_STORE_URL: is required\n"


def test_an_environment_that_fits_makes_an_app(monkeypatch, tmp_path):
    """The factory for gunicorn needs nothing but the environment, and no store yet."""
    found = settings(tmp_path, URL)
    monkeypatch.setenv("DITHER_STORE_URL", URL)
    monkeypatch.setenv("DITHER_REGISTRY", str(found.registry))
    monkeypatch.setenv("DITHER_KEYS_FILE", str(found.keys_file))
    client = app.create_app_from_env().test_client()
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/readyz").json["failing"] == ["store-writable"]
