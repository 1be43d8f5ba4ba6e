import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import dither_cli
import dither_protocol
from dither_cli import entry, main
from dither_cli.exit_codes import ExitCode

ROOTS = [str(Path(str(package.__file__)).parents[1]) for package in (dither_cli, dither_protocol)]


def run_bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the console script in a Python that has no packages installed at all."""
    code = f"import sys; sys.path[:0] = {ROOTS!r}; from dither_cli.entry import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_without_the_extra_the_command_says_which_one_to_install() -> None:
    """A bare `pip install dither` brings the SDK alone: no traceback, but the line to type."""
    done = run_bare("--help")
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.strip() == (
        "dither: this command needs the package 'click'. Install it with: pip install 'dither[cli]'"
    )


@pytest.mark.parametrize("missing", ["rich", "psutil", "gunicorn"])
def test_a_package_that_only_a_subcommand_needs_is_named_too(missing: str, tmp_path: Path) -> None:
    """Half an installation gets the same answer, whether the command or only its children need the package."""
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom dither_cli.entry import main; main()"
    command = [sys.executable, "-c", code, "serve", "--state-dir", str(tmp_path / "state"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE
    assert f"needs the package '{missing}'" in done.stderr
    assert not (tmp_path / "state").exists()


def test_an_archive_needs_an_extra_of_its_own(tmp_path: Path) -> None:
    """`dither[cli]` does not bring pyarrow; nothing is started without it."""
    code = "import sys; sys.modules['pyarrow'] = None\nfrom dither_cli.entry import main; main()"
    command = [sys.executable, "-c", code, "serve", "--state-dir", str(tmp_path / "state"), "--port", "0"]
    command += ["--archive", str(tmp_path / "archive")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE
    assert "needs the package 'pyarrow'. Install it with: pip install 'dither[archive]'" in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_missing_module_of_our_own_is_a_fault_and_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice to install an extra must not cover up a broken package."""
    monkeypatch.setitem(sys.modules, "dither_cli.main", None)
    with pytest.raises(ModuleNotFoundError, match=r"dither_cli\.main"):
        entry.main()


def test_help_lists_the_commands_without_importing_them() -> None:
    """`dither --help` is quick: neither numpy nor flask nor rich is loaded for it."""
    code = (
        "import sys, json\nfrom dither_cli.entry import main\n"
        "sys.argv = ['dither', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    shown, loaded = done.stdout.rstrip().rsplit("\n", 1)
    for name in main.COMMANDS:
        assert f"\n  {name} " in shown
    assert not {"numpy", "flask", "rich", "redis", "psutil"} & set(json.loads(loaded))


def test_an_unknown_command_is_a_usage_error() -> None:
    """The message is click's own, the exit code 2."""
    result = CliRunner().invoke(main.cli, ["pray"])
    assert result.exit_code == ExitCode.USAGE
    assert "No such command 'pray'" in result.output


def test_the_version_is_the_installed_one() -> None:
    """One number, from the package's metadata."""
    result = CliRunner().invoke(main.cli, ["--version"])
    assert result.exit_code == ExitCode.OK
    assert "version" in result.output
