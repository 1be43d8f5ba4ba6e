"""Answers that can be read back: no noise at all, for tests of an app's instrumentation only."""

import os
import sqlite3
from typing import Any, Final

from dither_client.client import Client
from dither_client.outbox import encode_answer
from dither_client.recording import Recorder
from dither_protocol.mechanisms import Data
from dither_protocol.registry.metric import Dimensions, Metric
from dither_protocol.windows import Window

IDENTITY_PARAMS: Final = "identity"
"""Stands where a params_hash belongs, eight characters that are no hexadecimal number: every server refuses it."""

_FLAG: Final = "DITHER_TESTING"


class _IdentityRecorder(Recorder):
    """Leaves the noise out."""

    def _randomized(self, connection: sqlite3.Connection, metric: Metric, index: int) -> Data:
        return metric.labels[index]

    def _encode(self, metric: Metric, window: Window, dimensions: Dimensions, data: Data) -> str:
        return encode_answer(metric, window, dimensions, data, IDENTITY_PARAMS)


class IdentityClient(Client):
    """A client whose reports carry the true answer as ``data``, and which no real server accepts.

    Args:
        arguments: as for `Client`.
        settings: as for `Client`.

    Raises:
        RuntimeError: the environment has no ``DITHER_TESTING=1``. There is no other way to switch the noise off.
    """

    _recorder_type = _IdentityRecorder

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        if os.environ.get(_FLAG) != "1":
            raise RuntimeError(f"answers without noise are for tests, which set {_FLAG}=1")
        super().__init__(*arguments, **settings)
