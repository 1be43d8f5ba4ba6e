"""Settings: every variable, every refusal."""

from pathlib import Path

import pytest

from dither_protocol.store_url import mask_store_url
from dither_server.settings import ConfigurationError, Settings

REQUIRED = {
    "DITHER_STORE_URL": "unix:///run/valkey.sock",
    "DITHER_REGISTRY": "registry.toml",
    "DITHER_KEYS_FILE": "keys.json",
}


def test_the_required_variables_are_enough():
    """Everything but the store, the registry and the keys has a default."""
    found = Settings.from_env(REQUIRED | {"HOME": "/", "DITHER_ACK": ""})
    assert found == Settings(
        store_url="unix:///run/valkey.sock", registry=Path("registry.toml"), keys_file=Path("keys.json")
    )
    assert (found.ack, found.partitions, found.high_water_bytes) == ("fsync", 8, None)
    assert (found.store_path, found.min_free_bytes, found.max_requests) == (None, 256 << 20, 0)
    assert (found.bind, found.workers, found.threads, found.log) == ("127.0.0.1:8787", 2, 32, "human")
    assert found.role == "all"


def test_every_variable_is_read():
    """Each optional variable reaches its field."""
    found = Settings.from_env(
        REQUIRED
        | {
            "DITHER_ACK": "replica",
            "DITHER_REPLICAS": "2",
            "DITHER_STORE_DURABLE": "1",
            "DITHER_PARTITIONS": "48",
            "DITHER_HIGH_WATER_BYTES": "1000",
            "DITHER_STORE_PATH": "/var/lib/store",
            "DITHER_MIN_FREE_BYTES": "0",
            "DITHER_MAX_REQUESTS": "10000",
            "DITHER_MAX_REQUESTS_JITTER": "500",
            "DITHER_ROLE": "ingest",
            "DITHER_BIND": "unix:/run/d.sock",
            "DITHER_WORKERS": "3",
            "DITHER_THREADS": "4",
            "DITHER_LOG": "json",
        }
    )
    assert (found.ack, found.store_durable, found.partitions, found.high_water_bytes) == (
        "replica",
        True,
        48,
        1000,
    )
    assert (found.replicas, found.store_path, found.min_free_bytes) == (2, Path("/var/lib/store"), 0)
    assert (found.max_requests, found.max_requests_jitter) == (10_000, 500)
    assert (found.bind, found.workers, found.threads, found.log) == ("unix:/run/d.sock", 3, 4, "json")
    assert found.role == "ingest"


@pytest.mark.parametrize("missing", sorted(REQUIRED))
@pytest.mark.parametrize("how", ["absent", "empty"])
def test_a_required_variable_is_missed_by_name(missing, how):
    """An absent or empty required variable is an error that names it."""
    environ = dict(REQUIRED)
    if how == "absent":
        del environ[missing]
    else:
        environ[missing] = ""
    with pytest.raises(ConfigurationError, match=f"^{missing}: is required") as caught:
        Settings.from_env(environ)
    assert caught.value.name == missing


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DITHER_STORE_URL", "http://localhost"),
        ("DITHER_STORE_URL", "localhost:6379"),
        ("DITHER_STORE_URL", "redis://"),
        ("DITHER_STORE_URL", "unix://"),
        ("DITHER_STORE_URL", "redis://[::1"),
        ("DITHER_STORE_URL", "redis://host:port"),
        ("DITHER_STORE_URL", "redis://host:0"),
        ("DITHER_STORE_URL", "cluster://host:1,"),
        ("DITHER_ACK", "never"),
        ("DITHER_REPLICAS", "0"),
        ("DITHER_REPLICAS", "17"),
        ("DITHER_REPLICAS", "1"),  # without DITHER_ACK=replica
        ("DITHER_MIN_FREE_BYTES", "1gb"),
        ("DITHER_MAX_REQUESTS", "-1"),
        ("DITHER_STORE_DURABLE", "yes"),
        ("DITHER_PARTITIONS", "0"),
        ("DITHER_PARTITIONS", "1025"),
        ("DITHER_PARTITIONS", "8.0"),
        ("DITHER_PARTITIONS", "٨"),  # an Arabic digit on purpose
        ("DITHER_PARTITIONS", "9" * 5_000),
        ("DITHER_HIGH_WATER_BYTES", "-1"),
        ("DITHER_HIGH_WATER_BYTES", "64MiB"),
        ("DITHER_BIND", "8787"),
        ("DITHER_BIND", ":8787"),
        ("DITHER_BIND", "127.0.0.1:65536"),
        ("DITHER_BIND", "127.0.0.1:x"),
        ("DITHER_BIND", "unix:"),
        ("DITHER_WORKERS", "0"),
        ("DITHER_THREADS", "no"),
        ("DITHER_LOG", "xml"),
    ],
)
def test_a_wrong_value_is_refused_by_its_variable(variable, value):
    """A value outside its range is an error that names the variable."""
    with pytest.raises(ConfigurationError, match=f"^{variable}: ") as caught:
        Settings.from_env(REQUIRED | {variable: value})
    assert caught.value.name == variable


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:1/0", "redis://user:***@host:1/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://user@host", "redis://user@host"),
        ("unix:///a/b?password=secret", "unix:///a/b?***"),
        ("redis://:se@cret@host", "redis://:***@host"),
        ("clusters://user:secret@a:1,b:2", "clusters://user:***@a:1,b:2"),
    ],
)
def test_a_password_is_never_shown(url, shown):
    """The repr of settings masks the store's password, wherever the URL carries it."""
    assert mask_store_url(url) == shown
    text = repr(Settings.from_env(REQUIRED | {"DITHER_STORE_URL": url}))
    assert shown in text
    assert "secret" not in text
    assert "cret" not in text.replace("secret", "")
