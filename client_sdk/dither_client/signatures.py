"""Checking Ed25519 signatures. The library for it is loaded when the first one is checked."""

from dither_client.transport import importing


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` is one of ``message`` by the holder of the private half (Ed25519, RFC 8032).

    Args:
        public_key: 32 bytes.
        signature: 64 bytes.
        message: what was signed.
    """
    with importing():
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  only for apps that pin a key
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
