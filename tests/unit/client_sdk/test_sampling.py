"""The samplers: exact, strict, and fed by the operating system alone. Their laws are in tests/statistical."""

import ast
from pathlib import Path

import pytest

import dither_client
from dither_client import entropy, randomize
from dither_client.sampling import _SAMPLERS
from dither_client.sampling.unary import bernoulli_bits
from dither_protocol import MECHANISMS, MechanismError, mechanism

CLIENT_ROOT = Path(dither_client.__file__).parent


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_every_mechanism_has_a_sampler_whose_data_its_mechanism_accepts(name: str) -> None:
    """What leaves the sampler passes the strict check of the wire form."""
    chosen = mechanism(name, 1.0, 2)
    assert name in _SAMPLERS
    for index in range(2):
        data = randomize(chosen, index)
        assert chosen.unpack(chosen.pack(data)) == data


@pytest.mark.parametrize("index", [-1, 5, True, 1.0, "1", None])
def test_an_index_outside_the_domain_is_refused_without_repeating_it(index: object) -> None:
    """True is not 1, and the message does not hold the value."""
    with pytest.raises(MechanismError) as caught:
        randomize(mechanism("grr", 1.0, 5), index)  # type: ignore[arg-type]
    assert str(caught.value) == "the index must be a whole number in [0, 5)"


def test_a_mechanism_without_a_sampler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that only the protocol knows gives a clear error."""
    monkeypatch.delitem(_SAMPLERS, "grr")
    with pytest.raises(MechanismError, match="no sampler"):
        randomize(mechanism("grr", 1.0, 5), 1)


def test_grr_maps_every_weight_to_the_right_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walking through the borders of the draw: the truth owns truth_weight draws, each other value lie_weight."""
    chosen = mechanism("grr", 1.0, 4)
    truth, lie = chosen.truth_weight, chosen.lie_weight  # type: ignore[attr-defined]
    borders = {0: 2, truth - 1: 2, truth: 3, truth + lie - 1: 3, truth + lie: 0, truth + 2 * lie: 1}
    borders[truth + 3 * lie - 1] = 1
    for draw, expected in borders.items():
        monkeypatch.setattr(entropy, "below", lambda bound, draw=draw: draw)
        assert randomize(chosen, 2) == expected, draw


@pytest.mark.parametrize("threshold", [1, 2, 3, 8, 0x8000_0000, 0xDEAD_BEEF, 0xFFFF_FFFF])
def test_folded_bits_are_the_comparison_with_the_threshold(
    threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold equals "inverted random number below threshold", bit for bit, which is uniform as well."""
    skipped = (threshold & -threshold).bit_length() - 1
    numbers = [0, 1, 2**32 - 1, threshold, threshold - 1, 2**32 - 1 - threshold, 2**32 - threshold, 12345]
    pool = bytearray()
    for digit in range(skipped, 32):
        pool.append(sum((number >> digit & 1) << place for place, number in enumerate(numbers)))
    monkeypatch.setattr(entropy, "random_bytes", lambda count: bytes(pool[:count]))
    bits = bernoulli_bits(threshold, len(numbers))
    mask = 2**32 - 1
    for place, number in enumerate(numbers):
        inverted = (number ^ mask) >> skipped << skipped
        assert (bits >> place & 1) == (inverted < threshold), number


def test_a_threshold_of_zero_gives_no_bits() -> None:
    """Probability zero is zero, with no draw at all."""
    assert bernoulli_bits(0, 100) == 0


def test_no_other_source_of_randomness_is_imported_by_the_sdk() -> None:
    """Neither `random` nor numpy appears in any import of the SDK, and `secrets`/`os.urandom` only where allowed."""
    for path in CLIENT_ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in {"random", "numpy"}, path
