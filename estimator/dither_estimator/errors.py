"""The error of this room, beside those of the protocol.

::

    DitherError
    └── EstimationError(ValueError)     numbers from which no honest estimate follows
"""

from dither_protocol import DitherError


class EstimationError(DitherError, ValueError):
    """The counters, their n or a setting of the estimate cannot be right. The message names the rule."""
