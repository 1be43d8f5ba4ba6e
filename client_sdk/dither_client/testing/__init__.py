"""For the tests of programs that use the SDK: no network, a clock to set, and answers that can be read back.

::

    transport = MemoryTransport()
    with Client("http://localhost", registry, ingest_key="test", transport=transport) as client:
        my_app(client)
    assert [report["metric"] for report in transport.reports] == ["dark_mode"]
"""

from dither_client.testing.clock import FakeClock
from dither_client.testing.identity import IDENTITY_PARAMS, IdentityClient
from dither_client.testing.memory import MemoryTransport

__all__ = ["IDENTITY_PARAMS", "FakeClock", "IdentityClient", "MemoryTransport"]
