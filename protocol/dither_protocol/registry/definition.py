"""One version of a metric as self-contained JSON: what the server writes into the store for workers and API.

So the worker needs no registry file, and old versions stay readable after the registry has moved on.
"""

import json

from dither_protocol.errors import RegistryError
from dither_protocol.registry import fields
from dither_protocol.registry.metric import Metric
from dither_protocol.registry.model import Registry


def encode_definition(registry: Registry, name: str) -> str:
    """The definition of the current version of metric ``name``."""
    metric = registry.metric(name)
    definition = {"name": name, "params": metric.params_hash, "table": registry.document["metrics"][name]}
    return json.dumps(definition, sort_keys=True, separators=(",", ":"))


def decode_definition(text: str | bytes) -> Metric:
    """The metric that `encode_definition` wrote.

    Raises:
        RegistryError: it is damaged, or this version of Dither gives its reports another meaning.
    """
    try:
        definition = json.loads(text)
        name, params, table = definition["name"], definition["params"], definition["table"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegistryError("definition", "is not one that a server wrote") from None
    metric = fields.read_metric(name, fields.table(f"metrics.{name}", table))
    if metric.params_hash != params:
        raise RegistryError(f"metrics.{name}", "was written by a version that means something else by it")
    return metric
