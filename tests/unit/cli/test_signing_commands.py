"""`dither registry keygen`, `sign` and `verify`, as a person and as a script use them."""

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_protocol.registry import parse_registry
from dither_protocol.registry.envelope import MAX_SIGNATURES, key_id, parse_envelope, parse_public_key

TOML = """
schema = 1
project = "example"
[metrics.browser]
version = 3
type = "categorical"
description = "Browser that opens links"
categories = ["a", "b", "ü"]
epsilon = 1.0
"""


def run(*arguments: object) -> Result:
    """`dither registry ...`."""
    return CliRunner().invoke(cli, ["registry", *map(str, arguments)])


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A registry file."""
    path = tmp_path / "registry.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


def make_key(folder: Path) -> tuple[Path, str]:
    """The private key's file, and the public key as it was printed."""
    result = run("keygen", "--out", folder)
    assert result.exit_code == ExitCode.OK, result.output
    public = result.stdout.removesuffix("\n")
    return folder / f"dither-signing-{key_id(parse_public_key(public))}.pem", public


def sign(registry: Path, out: Path, *options: object) -> Result:
    """`dither registry sign`."""
    return run("sign", registry, "--out", out, *options)


def test_a_new_key_is_private_and_its_public_half_is_printed(tmp_path: Path) -> None:
    """Mode 0600; standard output is the public key alone; two keys never share a file."""
    folder = tmp_path / "keys"
    private, public = make_key(folder)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert private.with_suffix(".pub").read_text() == public + "\n"
    assert private.read_text().splitlines()[1] not in public
    make_key(folder)
    assert len(list(folder.glob("*.pem"))) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_signed_verifies_and_carries_the_registry(tmp_path: Path, registry: Path) -> None:
    """By the key as text or as a file; the document is the registry that was signed."""
    private, public = make_key(tmp_path)
    out = tmp_path / "registry.signed.json"
    assert sign(registry, out, "--key", private).exit_code == ExitCode.OK
    signed = parse_envelope(out.read_bytes())
    assert (signed.revision, signed.registry) == (1, parse_registry(TOML))
    for given in (public, private.with_suffix(".pub")):
        result = run("verify", out, "--key", given)
        assert result.exit_code == ExitCode.OK, result.output
        assert result.output.startswith("revision 1 of example, signed by ")
    found = json.loads(run("verify", out, "--key", public, "--json").output)
    assert (found["project"], found["revision"], found["trusted"]) == ("example", 1, found["keys"])
    assert found["digest"] == signed.digest


def test_the_revision_grows_with_every_signing(tmp_path: Path, registry: Path) -> None:
    """From the file that is replaced. A lower one, or the same one with other content, is refused."""
    private, _ = make_key(tmp_path)
    out = tmp_path / "signed"
    first = sign(registry, out, "--key", private)
    assert "the first revision" in first.stderr
    for expected in (2, 3):
        assert "the first revision" not in sign(registry, out, "--key", private).stderr
        assert parse_envelope(out.read_bytes()).revision == expected
    assert sign(registry, out, "--key", private, "--revision", 9).exit_code == ExitCode.OK
    before = out.read_bytes()
    assert sign(registry, out, "--key", private, "--revision", 9).exit_code == ExitCode.OK  # the same again
    registry.write_text(TOML.replace("links", "a link"), encoding="utf-8")
    for revision in (8, 9):
        refused = sign(registry, out, "--key", private, "--revision", revision)
        assert refused.exit_code == ExitCode.FAILED
        assert "has revision 9 already; the next is 10" in refused.stderr
    assert out.read_bytes() == before


def test_two_keys_sign_during_a_rotation(tmp_path: Path, registry: Path) -> None:
    """Apps that know either of them accept it; a third key does not."""
    (old, old_public), (new, new_public), (_, other_public) = (make_key(tmp_path) for _ in range(3))
    out = tmp_path / "signed"
    assert sign(registry, out, "--key", old, "--key", new).exit_code == ExitCode.OK
    assert run("verify", out, "--key", old_public).exit_code == ExitCode.OK
    assert run("verify", out, "--key", new_public).exit_code == ExitCode.OK
    assert run("verify", out, "--key", other_public, "--key", new_public).exit_code == ExitCode.OK
    refused = run("verify", out, "--key", other_public)
    assert refused.exit_code == ExitCode.FAILED
    assert "none by a key that is trusted" in refused.stderr


def test_what_devices_could_not_read_is_not_written(tmp_path: Path, registry: Path) -> None:
    """More signatures than an envelope may have: the file before it stays."""
    keys = [option for _ in range(MAX_SIGNATURES + 1) for option in ("--key", make_key(tmp_path)[0])]
    out = tmp_path / "signed"
    assert sign(registry, out, *keys[2:]).exit_code == ExitCode.OK
    before = out.read_bytes()
    refused = sign(registry, out, *keys)
    assert (refused.exit_code, "1 to 8 signatures" in refused.stderr) == (ExitCode.FAILED, True)
    assert out.read_bytes() == before


def test_a_file_that_is_not_signed_is_said_to_be_none(tmp_path: Path, registry: Path) -> None:
    """Not that it is no JSON: whoever gave the TOML file learns what to do."""
    refused = run("verify", registry, "--key", make_key(tmp_path)[1])
    assert (refused.exit_code, "`dither registry sign`" in refused.stderr) == (ExitCode.FAILED, True)


def test_what_was_changed_is_refused(tmp_path: Path, registry: Path) -> None:
    """And so is what is no signed registry at all."""
    private, public = make_key(tmp_path)
    out = tmp_path / "signed"
    sign(registry, out, "--key", private)
    good = out.read_text()
    for bad in (good.replace('"revision": 1', '"revision": 2'), good.replace("links", "LINKS"), TOML, "{"):
        out.write_text(bad)
        assert run("verify", out, "--key", public).exit_code == ExitCode.FAILED


def test_other_files_are_not_overwritten(tmp_path: Path, registry: Path) -> None:
    """Neither one that is no signed registry, nor one of another project, nor a broken one."""
    private, _ = make_key(tmp_path)
    assert "is no signed registry" in sign(registry, registry, "--key", private).stderr
    assert registry.read_text(encoding="utf-8") == TOML
    out = tmp_path / "signed"
    sign(registry, out, "--key", private)
    registry.write_text(TOML.replace('"example"', '"other"'), encoding="utf-8")
    assert "is of project 'example'" in sign(registry, out, "--key", private).stderr
    out.write_text("{}")
    refused = sign(registry, out, "--key", private)
    assert (refused.exit_code, "envelope" in refused.stderr) == (ExitCode.FAILED, True)


def test_a_broken_registry_is_not_signed(tmp_path: Path, registry: Path) -> None:
    """Its rule is named, and nothing is written."""
    private, _ = make_key(tmp_path)
    registry.write_text(TOML.replace("epsilon = 1.0", "epsilon = -1"), encoding="utf-8")
    result = sign(registry, tmp_path / "signed", "--key", private)
    assert result.exit_code == ExitCode.FAILED
    assert "metrics.browser.epsilon" in result.stderr
    assert not (tmp_path / "signed").exists()


def test_another_kind_of_key_is_refused(tmp_path: Path, registry: Path) -> None:
    """A public key, an elliptic curve's, an encrypted one, a text: none of them signs."""
    private, public = make_key(tmp_path)
    other = generate_private_key(SECP256R1())
    formats = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    encrypted = other.private_bytes(*formats, serialization.BestAvailableEncryption(b"x"))
    plain = other.private_bytes(*formats, serialization.NoEncryption())
    for number, content in enumerate((public.encode(), plain, encrypted, b"x", b"\xff")):
        path = tmp_path / f"key{number}"
        path.write_bytes(content)
        result = sign(registry, tmp_path / "signed", "--key", path)
        assert result.exit_code == ExitCode.FAILED
        assert "is no private key of `dither registry keygen`" in result.stderr
    assert private.exists()


def test_a_key_that_others_can_read_is_said(tmp_path: Path, registry: Path) -> None:
    """It signs all the same: the harm is done, if there is one."""
    private, _ = make_key(tmp_path)
    private.chmod(0o640)
    result = sign(registry, tmp_path / "signed", "--key", private)
    assert result.exit_code == ExitCode.OK
    assert "others can read" in result.stderr


def test_a_mistyped_public_key_is_a_usage_error(tmp_path: Path, registry: Path) -> None:
    """Exit code 2, not a verdict on the file."""
    private, public = make_key(tmp_path)
    sign(registry, tmp_path / "signed", "--key", private)
    for bad in (public[:-1], public[:-1] + ("A" if public[-1] != "A" else "B"), "nowhere.pub", os.devnull):
        result = run("verify", tmp_path / "signed", "--key", bad)
        assert result.exit_code == ExitCode.USAGE, result.output
