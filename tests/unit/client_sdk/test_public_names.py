"""The public surface of the SDK."""

import subprocess
import sys
from pathlib import Path

import dither_client
import dither_client.testing


def test_the_public_names_are_pinned() -> None:
    """Adding or removing a name is a decision, and shows here."""
    assert sorted(dither_client.__all__) == [
        "BudgetExhaustedError",
        "Client",
        "FlushResult",
        "MetricSpending",
        "NotConsentedError",
        "Pending",
        "PrivacyLedger",
        "RecordResult",
        "RecordStatus",
        "StateError",
        "StrictError",
        "default_state_dir",
        "flush",
        "init",
        "randomize",
        "record",
        "shutdown",
    ]
    for name in dither_client.__all__:
        assert getattr(dither_client, name).__module__.startswith("dither_client")
    assert dir(dither_client) == sorted(dither_client.__all__)


def test_the_names_of_the_testing_kit_are_pinned() -> None:
    """Apps' own tests rely on them."""
    assert sorted(dither_client.testing.__all__) == [
        "FakeClock",
        "IDENTITY_PARAMS",
        "IdentityClient",
        "MemoryTransport",
    ]
    assert all(hasattr(dither_client.testing, name) for name in dither_client.testing.__all__)


def test_the_statuses_of_record_are_pinned() -> None:
    """Apps compare with these words."""
    assert [str(status) for status in dither_client.RecordStatus] == [
        "queued",
        "already_reported_this_window",
        "not_drawn",
        "budget_exhausted",
        "not_consented",
        "disabled",
        "dropped",
    ]


def test_randomize_is_a_function_and_stays_one() -> None:
    """No submodule of the same name may shadow it."""
    import dither_client.sampling  # noqa: PLC0415  the import is what is tested

    assert callable(dither_client.randomize)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy package behaves like any other."""
    assert not hasattr(dither_client, "nonsense")


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    """Neither requests nor sqlite3 nor numpy are loaded by the import alone, and requests not by recording."""
    script = (
        "import sys, dither_client\n"
        "assert not {'requests', 'sqlite3', 'numpy', 'dataclasses'} & sys.modules.keys()\n"
        "client = dither_client.Client('http://127.0.0.1:9', sys.argv[1], ingest_key='x', delay_s=3600)\n"
        "assert str(client.record('m', True).status) == 'queued'\n"
        "heavy = {'requests', 'urllib3', 'numpy', 'redis', 'flask', 'cryptography'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "client.set_consent(False)\n"
        "client.shutdown(0)\n"
    )
    registry = (
        'schema = 1\nproject = "p"\n[metrics.m]\nversion = 1\ntype = "boolean"\n'
        'description = "d"\nepsilon = 1.0\nmechanism = "rr"\n'
    )
    path = tmp_path / "registry.toml"
    path.write_text(registry)
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
