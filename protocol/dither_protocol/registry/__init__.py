"""The registry: the metrics of one project, read strictly from TOML or from its JSON form."""

from dither_protocol.registry.definition import decode_definition, encode_definition
from dither_protocol.registry.document import load_registry, parse_registry, registry_from_document
from dither_protocol.registry.metric import Metric, canonical_dimensions
from dither_protocol.registry.model import Privacy, Registry

__all__ = [
    "Metric",
    "Privacy",
    "Registry",
    "canonical_dimensions",
    "decode_definition",
    "encode_definition",
    "load_registry",
    "parse_registry",
    "registry_from_document",
]
