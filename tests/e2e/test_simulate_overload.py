"""A crowd on a server whose backlog may hold next to nothing: it says so, and loses nothing."""

import os
import tempfile
from pathlib import Path

from dither_cli.api_client import Api
from dither_cli.service import Service, ServiceOptions
from dither_cli.simulate_place import Target
from dither_cli.simulate_run import Plan, Watcher, simulate
from dither_fleet.faults import Faults

HIGH_WATER_BYTES = 4_000
"""Of one partition: some tens of batches, which come in a few hundredths of a second."""


def test_a_flash_crowd_is_told_to_come_back_and_everything_is_delivered() -> None:
    """Full partitions answer 503 with Retry-After and nothing else; once the crowd has gone all is counted once."""
    environ = os.environ | {"DITHER_HIGH_WATER_BYTES": str(HIGH_WATER_BYTES)}
    plan = Plan(
        devices=1_000,
        days=1,
        seed=1,
        faults=Faults.parse("swallow=0.02,duplicate=0.02"),
        profile="flash-crowd",
        rate=600.0,
        processes=2,
        connections=32,
        time_limit_s=120.0,
    )
    with (
        tempfile.TemporaryDirectory(prefix="d-") as folder,
        Service(ServiceOptions(Path(folder), environ=environ)) as service,
    ):
        service.launch()
        assert service.wait_ready()
        api = Api(service.base_url, service.operator_token)
        result = simulate(plan, Target(service.base_url, service.ingest_key, api), Watcher())
    assert result.verdict.problems == []
    assert result.tally.retries["http:503"] > 0
    assert result.tally.untimed == 0
    assert result.tally.settled == result.tally.made
    assert result.tally.devices == 1_000
    assert result.high_water_bytes == HIGH_WATER_BYTES
    assert result.backlog
