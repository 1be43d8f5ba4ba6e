"""The SDK's logger, ``dither_client``. The standard library's logging is loaded when there is something to say."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> "logging.Logger":
    """The one logger of the SDK."""
    import logging  # noqa: PLC0415  a third of what a short program would pay for the SDK otherwise

    return logging.getLogger("dither_client")
