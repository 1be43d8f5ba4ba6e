"""A certificate authority of the test's own, and a certificate for 127.0.0.1."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files.

    Attributes:
        authority: certificate of the authority; clients trust it.
        certificate: of the server.
        key: of the server.
    """

    authority: Path
    certificate: Path
    key: Path

    def server_options(self) -> dict[str, str]:
        """Options of a Redis or Valkey server; clients need no certificate."""
        return {
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.authority),
            "tls-auth-clients": "no",
        }

    @property
    def url_options(self) -> str:
        """The query of a URL whose client trusts the authority."""
        return f"ssl_ca_certs={quote(str(self.authority), safe='')}"


def make_certificates(folder: Path) -> Certificates:
    """New keys and certificates in a folder."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("test authority", authority_key, None, authority_key)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _certificate("test store", server_key, authority, authority_key)
    found = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    found.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    found.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return found


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """The authority's own certificate without an ``issuer``, else one for 127.0.0.1."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if issuer is not None:
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        builder = builder.add_extension(addresses, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
