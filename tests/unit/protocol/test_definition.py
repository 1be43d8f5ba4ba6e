import json

import pytest

from dither_protocol import RegistryError, UnknownMetricError, parse_registry, registry_from_document
from dither_protocol.registry import decode_definition, encode_definition
from support.protocol_samples import MARKER, document, refused


@pytest.mark.parametrize("name", ["browser", "dark_mode"])
def test_round_trip(name: str) -> None:
    """A worker without the registry reads the same metric back, from text or bytes."""
    registry = registry_from_document(document())
    text = encode_definition(registry, name)
    assert decode_definition(text) == decode_definition(text.encode()) == registry.metric(name)


def test_definition_from_toml_with_a_date() -> None:
    """A date of TOML survives as text."""
    toml = """
        schema = 1
        project = "p"
        [metrics.m]
        version = 1
        type = "boolean"
        description = "m"
        epsilon = 1.0
        mechanism = "rr"
        period = "once"
        expires = 2027-06-30
    """
    registry = parse_registry(toml)
    assert decode_definition(encode_definition(registry, "m")) == registry.metric("m")


def test_equal_definitions_are_equal_bytes() -> None:
    """The order of keys in the file does not show, so that a server can compare definitions as bytes."""
    turned = document()
    turned["metrics"]["browser"] = dict(reversed(turned["metrics"]["browser"].items()))
    first = encode_definition(registry_from_document(document()), "browser")
    assert encode_definition(registry_from_document(turned), "browser") == first


def test_unknown_metric_has_no_definition() -> None:
    """Only a metric of the registry is encoded."""
    with refused(UnknownMetricError, "no metric of this name"):
        encode_definition(registry_from_document(document()), MARKER)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"x"',
        "{}",
        '{"name":"browser","params":"00000000"}',
        b"\xff\xfe\x00",
        "[" * 100_000,
        f'{{"name":{MARKER}}}',
        "1" * 5_000,
    ],
)
def test_damaged_definitions(text: str | bytes) -> None:
    """What no server wrote is a RegistryError that does not repeat it."""
    with refused(RegistryError, "definition: is not one that a server wrote"):
        decode_definition(text)


def test_damaged_table() -> None:
    """The table inside is read as strictly as a registry."""
    definition = json.loads(encode_definition(registry_from_document(document()), "browser"))
    definition["table"]["epsilon"] = MARKER
    with refused(RegistryError, "metrics.browser.epsilon"):
        decode_definition(json.dumps(definition))
    definition["table"] = MARKER
    with refused(RegistryError, "metrics.browser: must be a table"):
        decode_definition(json.dumps(definition))


def test_another_meaning_is_refused() -> None:
    """Reports counted under one meaning are never debiased under another."""
    definition = json.loads(encode_definition(registry_from_document(document()), "browser"))
    definition["table"]["epsilon"] = 1.5
    with refused(RegistryError, "metrics.browser: was written by a version that"):
        decode_definition(json.dumps(definition))
