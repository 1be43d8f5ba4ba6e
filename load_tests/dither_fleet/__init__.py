"""Simulated devices: true values from a known distribution, real noise, real batches over real HTTP."""

from dither_fleet.fleet import Fleet, FleetResult, MetricTruth
from dither_fleet.population import read_distribution
from dither_fleet.samplers import randomize_many
from dither_fleet.verdict import most_misses

__all__ = ["Fleet", "FleetResult", "MetricTruth", "most_misses", "randomize_many", "read_distribution"]
