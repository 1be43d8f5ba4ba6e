"""Short words for JSON Schema, so that the tables of this folder read as tables."""

from collections.abc import Mapping
from typing import Any

from dither_protocol.mechanisms import MECHANISMS
from dither_protocol.windows import PERIODS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
DAY: Schema = {"type": "string", "format": "date"}
INSTANT: Schema = {"type": "string", "format": "date-time"}
PAIR: Schema = {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}
MECHANISM: Schema = {"type": "string", "enum": list(MECHANISMS)}
PERIOD: Schema = {"type": "string", "enum": list(PERIODS)}


def ref(name: str) -> Schema:
    """A schema of the components, by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def mapped(values: Schema) -> Schema:
    """An object whose names are data."""
    return {"type": "object", "additionalProperties": values}


def nullable(schema: Schema) -> Schema:
    """It, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def said(schema: Schema, description: str) -> Schema:
    """It, with a description."""
    return {**schema, "description": description}


def shaped(
    always: Mapping[str, Schema], sometimes: Mapping[str, Schema] | None = None, about: str = ""
) -> Schema:
    """An object with members that are always there, and others that may be. Later versions may say more."""
    found: Schema = {
        "type": "object",
        "properties": {**always, **(sometimes or {})},
        "required": list(always),
    }
    return said(found, about) if about else found
