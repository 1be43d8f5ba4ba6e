"""``dither registry keygen``, ``sign`` and ``verify``: for devices that trust a key instead of a server."""

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from dither_cli.exit_codes import ExitCode
from dither_cli.files import naming, read_registry, write_private, write_whole
from dither_protocol.errors import RegistryError
from dither_protocol.registry import Registry
from dither_protocol.registry.envelope import (
    MAX_REVISION,
    PUBLIC_KEY_PREFIX,
    SignedRegistry,
    canonical_document,
    encode_envelope,
    is_envelope,
    key_id,
    parse_envelope,
    parse_public_key,
    public_key_text,
    signed_bytes,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for the two files; made if it is not there.  [default: this one]",
)
def keygen(*, out: Path) -> None:
    """Make a key pair, and print the public key: what apps pin as registry_keys.

    The private key stands in a file of mode 0600. Keep it where registries are signed, never on the server: it is
    what a broken server does not have.
    """
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  only who signs pays for it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    base = out / f"dither-signing-{key_id(public)}"
    write_private(base.with_suffix(".pem"), pem.decode("ascii"))
    write_whole(base.with_suffix(".pub"), public_key_text(public) + "\n")
    click.echo(public_key_text(public))
    click.echo(
        f"key {key_id(public)}: the private half is {base.with_suffix('.pem')}; keep it off the server",
        err=True,
    )


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--key", "keys", type=_FILE, multiple=True, required=True, help="A private key; during a rotation both."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The signed file, for the server.",
)
@click.option(
    "--revision",
    type=click.IntRange(1, MAX_REVISION),
    help="Higher than any before.  [default: one more than in --out; 1 where there is none]",
)
def sign(file: Path, *, keys: tuple[Path, ...], out: Path, revision: int | None) -> None:
    """Sign the registry in FILE. Keep the signed file: the next revision follows from it."""
    try:
        registry, before = read_registry(file), _before(out)
    except RegistryError as error:
        _fail("sign", str(error))
    document = canonical_document(registry)
    chosen = revision or (1 if before is None else before.revision + 1)
    _check_order(registry, document, chosen, before)
    message = signed_bytes(chosen, document)
    signatures = {}
    for path in keys:
        private = _private_key(path)
        signatures[key_id(private.public_key().public_bytes_raw())] = private.sign(message)
    envelope = encode_envelope(chosen, document, signatures)
    try:
        parse_envelope(envelope)  # what a device could not read must not take the place of what it can
    except RegistryError as error:
        _fail("sign", f"devices would refuse it: {error}")
    write_whole(out, envelope.decode("ascii"))
    click.echo(f"{out}: revision {chosen} of {registry.project}, signed by {', '.join(signatures)}", err=True)
    if before is None and revision is None:
        click.echo("It is the first revision; devices that have seen a higher one refuse it.", err=True)


def _before(out: Path) -> SignedRegistry | None:
    """What was signed last, which the new file replaces."""
    if not out.exists():
        return None
    with naming(out):
        data = out.read_bytes()
    if not is_envelope(data):
        _fail("sign", f"{out} is there and is no signed registry; choose another --out")
    return parse_envelope(data)


def _check_order(registry: Registry, document: bytes, revision: int, before: SignedRegistry | None) -> None:
    """Devices refuse a lower revision, the same one with other content, and another project; so does this."""
    if before is None:
        return
    if before.registry.project != registry.project:
        _fail("sign", f"--out is of project '{before.registry.project}', this one is of '{registry.project}'")
    if revision < before.revision or (revision == before.revision and document != before.document):
        _fail("sign", f"--out has revision {before.revision} already; the next is {before.revision + 1}")


def _private_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    with naming(path):
        pem, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    try:
        found = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it is encrypted
        found = None
    if not isinstance(found, Ed25519PrivateKey):
        _fail("sign", f"{path} is no private key of `dither registry keygen`")
    if mode & 0o077:
        click.echo(f"others can read {path}: chmod 600 it", err=True)
    return found


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    help=f"A public key, {PUBLIC_KEY_PREFIX}..., or a file with one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(file: Path, *, keys: tuple[str, ...], as_json: bool) -> None:
    """Check that FILE is signed by one of the keys, as devices that pin them do. Exits 1 if it is not."""
    from dither_client.signatures import verify as verify_signature  # noqa: PLC0415

    pinned = {key_id(public): public for public in map(_public_key, keys)}
    with naming(file):
        data = file.read_bytes()
    if not is_envelope(data):
        _fail("verify", f"{file} is not signed; `dither registry sign` makes the signed form")
    try:
        signed = parse_envelope(data)
        signers = signed.trusted_by(pinned, verify_signature)
    except RegistryError as error:
        _fail("verify", f"{file}: {error}")
    if as_json:
        found: dict[str, Any] = {
            "project": signed.registry.project,
            "revision": signed.revision,
            "digest": signed.digest,
            "keys": list(signed.signatures),
            "trusted": signers,
        }
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"revision {signed.revision} of {signed.registry.project}, signed by {', '.join(signers)}")


def _public_key(given: str) -> bytes:
    text = given
    if not given.startswith(PUBLIC_KEY_PREFIX):
        try:
            text = Path(given).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            raise click.BadParameter(
                f"'{given}' is no public key, and no file with one", param_hint="--key"
            ) from None
    try:
        return parse_public_key(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--key") from None


def _fail(command: str, message: str) -> NoReturn:
    click.echo(f"dither registry {command}: {message}", err=True)
    raise SystemExit(ExitCode.FAILED)
