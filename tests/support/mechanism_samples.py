"""Reports that a mechanism could have produced, drawn by hypothesis."""

from typing import cast

from hypothesis import strategies as st

from dither_protocol import Mechanism
from dither_protocol.mechanisms import Form, LocalHashing, SubsetSelection


@st.composite
def packed_reports(draw: st.DrawFn, made: Mechanism) -> bytes:
    """One report in its packed form."""
    if made.form is Form.INDEX:
        return draw(st.integers(0, made.counters - 1)).to_bytes(4, "little")
    if made.form is Form.HASH:
        g = cast(LocalHashing, made).g
        seed, value = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, g - 1))
        return seed.to_bytes(4, "little") + value.to_bytes(4, "little")
    if isinstance(made, SubsetSelection):
        chosen = draw(st.permutations(range(made.d)))[: made.w]
        bits = sum(1 << v for v in chosen)
    else:
        bits = draw(st.integers(0, (1 << made.d) - 1))
    return bits.to_bytes(made.packed_size, "little")
