"""The public surface of the SDK."""

import subprocess
import sys

import dither_client


def test_the_public_names_are_pinned() -> None:
    """Adding or removing a name is a decision, and shows here."""
    assert sorted(dither_client.__all__) == [
        "Client",
        "FlushResult",
        "RecordResult",
        "RecordStatus",
        "randomize",
    ]
    for name in dither_client.__all__:
        assert getattr(dither_client, name).__module__.startswith("dither_client")
    assert dir(dither_client) == sorted(dither_client.__all__)


def test_randomize_is_a_function_and_stays_one() -> None:
    """No submodule of the same name may shadow it."""
    import dither_client.sampling  # noqa: PLC0415  the import is what is tested

    assert callable(dither_client.randomize)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy package behaves like any other."""
    assert not hasattr(dither_client, "nonsense")


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Neither requests nor sqlite3 nor numpy are loaded by the import alone, and requests not by recording."""
    script = (
        "import sys, dither_client\n"
        "assert not {'requests', 'sqlite3', 'numpy', 'dataclasses'} & sys.modules.keys()\n"
        "dither_client.Client\n"
        "assert not {'requests', 'numpy', 'redis', 'flask', 'cryptography'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
