import binascii
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.errors import StorageError
from dither_protocol.labels import MAX_LABEL_LENGTH
from dither_protocol.registry.fields import MAX_DIMENSIONS
from dither_protocol.registry.metric import Dimensions
from dither_protocol.storage import (
    CLUSTER_SLOTS,
    COMBINED,
    LAYOUT,
    MAX_PARTITIONS,
    META_KEY,
    METRICS_KEY,
    WORKERS_KEY,
    Cell,
    PartitionKeys,
    cell_name,
    companion_field,
    decode_cell,
    decode_entry,
    dimensions_text,
    encode_cell,
    encode_entry,
    estimate_field,
    estimates_key,
    metric_key,
    open_key,
    parse_cell,
    parse_dimensions_text,
    parse_published_member,
    partition_of,
    partition_tags,
    published_key,
    published_member,
    rollups_key,
    split_entry,
    totals_key,
    versions_key,
)
from support.protocol_samples import MARKER, refused

INT64_MAX = 2**63 - 1
HOSTILE = [
    "a:b",
    "a,b",
    "a=b",
    "a%b",
    "%3A",
    "a/b",
    "a|b",
    "{a}",
    "*",
    "a b",
    "\U0001f469\u200d\U0001f4bb",
    "ß+&",
]

names = st.from_regex(r"[a-z][a-z0-9_]{0,63}", fullmatch=True)
labels = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
dimension_sets = st.dictionaries(names, labels, max_size=4).map(lambda d: tuple(sorted(d.items())))
cells = st.builds(
    Cell,
    metric=names,
    version=st.integers(1, 2**31 - 1),
    window=st.sampled_from(["2026-11-29T13", "2026-11-29", "2026-W48", "2026-11", "once"]),
    dimensions=dimension_sets,
)
groups = st.integers(1, 40).flatmap(
    lambda width: st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
        st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=5),
    )
)
entries = st.lists(groups, max_size=4)


def _unpacked(entry: bytes) -> list[tuple[str, list[bytes]]]:
    """A stream entry decoded, each group's reports taken apart."""
    found = []
    for name, width, count, packed in decode_entry(entry):
        assert len(packed) == width * count
        found.append((name, [bytes(packed[at : at + width]) for at in range(0, len(packed), width)]))
    return found


@given(entries)
def test_entry_round_trip(sent: list[tuple[str, list[bytes]]]) -> None:
    """The worker reads from the stream what the server wrote."""
    assert _unpacked(encode_entry(sent)) == sent


def test_entry_layout() -> None:
    """An entry is these very bytes: old entries must stay readable."""
    entry = encode_entry([("m:1:once:", [b"\x01\x02", b"\x03\x04"]), ("é", [b"\xff"])])
    assert entry == (
        b"\x01"
        b"\x09\x00\x02\x00\x02\x00\x00\x00m:1:once:\x01\x02\x03\x04"
        b"\x02\x00\x01\x00\x01\x00\x00\x00\xc3\xa9\xff"
    )


@given(entries)
def test_truncated_entry(sent: list[tuple[str, list[bytes]]]) -> None:
    """An entry cut at any byte gives whole groups from its beginning, and no garbage; mostly it is an error."""
    entry = encode_entry(sent)
    ends = {len(encode_entry(sent[:count])) for count in range(len(sent) + 1)}
    for end in range(len(entry)):
        found = []
        try:
            for name, _, _, packed in decode_entry(entry[:end]):
                found.append((name, bytes(packed)))
            clean = True
        except StorageError:
            clean = False
        assert clean == (end in ends)
        assert found == [(name, b"".join(reports)) for name, reports in sent][: len(found)]


@given(st.binary(max_size=60).map(lambda tail: b"\x01" + tail))
def test_any_bytes_are_an_entry_or_an_error(entry: bytes) -> None:
    """Whatever is accepted is exactly what would be written again."""
    try:
        found = _unpacked(entry)
    except StorageError:
        return
    assert encode_entry(found) == entry


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (b"", "unknown version"),
        (b"\x00", "unknown version"),
        (b"\x02\x00", "unknown version"),
        (b"\x01\x00", "ends inside a group"),
        (b"\x01\x01\x00\x01\x00\x01\x00\x00\x00a", "ends inside a group"),
        (b"\x01\x01\x00\x00\x00\x01\x00\x00\x00a", "ends inside a group"),  # reports of no bytes
        (b"\x01\x01\x00\x01\x00\x00\x00\x00\x00a", "ends inside a group"),  # no reports
        (b"\x01\x01\x00\xff\xff\xff\xff\xff\xffa", "ends inside a group"),
        (b"\x01\x01\x00\x01\x00\x01\x00\x00\x00\xff\x00", "not UTF-8"),
    ],
)
def test_damaged_entries(entry: bytes, problem: str) -> None:
    """An entry that no server wrote is a StorageError."""
    with pytest.raises(StorageError, match=problem):
        list(decode_entry(entry))


def test_an_entry_is_split_without_reading_names() -> None:
    """What is no name can be told from what is: that is the reader's, who has met most names before."""
    raw = [b"m:1:once:", b"\xff"]
    entry = encode_entry([("m:1:once:", [b"ab", b"cd"])]) + b"\x01\x00\x01\x00\x01\x00\x00\x00\xffz"
    assert list(split_entry(entry)) == [(raw[0], 2, 2, b"abcd"), (raw[1], 1, 1, b"z")]
    assert cell_name(raw[0]) == "m:1:once:"
    with pytest.raises(StorageError, match="not UTF-8"):
        cell_name(raw[1])


def test_damaged_entry_keeps_quiet() -> None:
    """The error about a cell's name does not repeat it."""
    name = MARKER.encode() + b"\xff"
    head = len(name).to_bytes(2, "little") + b"\x01\x00\x01\x00\x00\x00"
    with refused(StorageError, "not UTF-8"):
        list(decode_entry(b"\x01" + head + name + b"\x00"))


@given(st.integers(0, INT64_MAX), st.lists(st.integers(0, INT64_MAX), max_size=20))
def test_cell_counters_round_trip(n: int, counters: list[int]) -> None:
    """Counters up to the largest int64 survive, eight little-endian bytes each."""
    packed = encode_cell(n, counters)
    assert len(packed) == 8 * (1 + len(counters))
    assert packed[:8] == n.to_bytes(8, "little")
    assert decode_cell(packed) == (n, tuple(counters))


@pytest.mark.parametrize(
    ("n", "counters"), [(-1, [0]), (0, [-1]), (INT64_MAX + 1, []), (0, [0, INT64_MAX + 1])]
)
def test_counter_outside_int64(n: int, counters: list[int]) -> None:
    """An overflow is an error and never a wrap; a negative count is an error too."""
    with pytest.raises(StorageError, match="outside int64"):
        encode_cell(n, counters)


@given(st.lists(st.integers(0, INT64_MAX), min_size=1, max_size=5))
def test_truncated_cell(numbers: list[int]) -> None:
    """A cell cut at any byte is an error, or whole numbers from its beginning."""
    packed = encode_cell(numbers[0], numbers[1:])
    for end in range(len(packed)):
        if end and end % 8 == 0:
            n, counters = decode_cell(packed[:end])
            assert [n, *counters] == numbers[: end // 8]
        else:
            with pytest.raises(StorageError, match="not a list of int64"):
                decode_cell(packed[:end])


@given(cells)
def test_cell_name_round_trip(cell: Cell) -> None:
    """The name of a cell can be read back, whatever characters its dimensions have."""
    assert parse_cell(cell.name) == cell


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_labels_in_names(value: str) -> None:
    """A label with a separator of ours neither breaks a name nor makes two cells one."""
    cell = Cell("m", 1, "once", (("a", value), ("b", value)))
    assert parse_cell(cell.name) == cell
    assert re.fullmatch(r"m:1:once:a=[^:,=/{}|* ]+,b=[^:,=/{}|* ]+", cell.name, re.ASCII)


def test_longest_cell_name_fits_an_entry() -> None:
    """The worst registry that is accepted makes a name that the two bytes of its length can hold."""
    label = "\U0001f469" * MAX_LABEL_LENGTH
    dimensions = tuple((f"d{i:02d}" + "x" * 61, label) for i in range(MAX_DIMENSIONS))
    cell = Cell("m" * 64, 2**31 - 1, "2026-11-29T13", dimensions)
    assert _unpacked(encode_entry([(cell.name, [b"x"])])) == [(cell.name, [b"x"])]
    assert parse_cell(cell.name) == cell


@given(dimension_sets, dimension_sets)
def test_dimension_texts_are_distinct(one: Dimensions, other: Dimensions) -> None:
    """Two texts are equal exactly when the dimensions are, and each reads back."""
    assert (dimensions_text(one) == dimensions_text(other)) == (one == other)
    assert parse_dimensions_text(dimensions_text(one)) == one


@pytest.mark.parametrize(
    "name",
    [
        "",
        "m",
        "m:1:once",
        "m:x:once:",
        "m:1.0:once:",
        "m:01:once:",
        "m:+1:once:",
        "m: 1:once:",
        "m:1_0:once:",
        "m:1:once:os",
        "m:1:once:os=%zz",
        "m:1:once:os=%FF",
        "m:1:once:os=a:b",
        "m:1:once:,",
    ],
)
def test_bad_cell_names(name: str) -> None:
    """Only names as they are written are read: no second spelling of a version or a label."""
    with pytest.raises(StorageError, match="not the name of a cell"):
        parse_cell(name)


def test_cell_name_error_keeps_quiet() -> None:
    """The error about a cell's name does not repeat it."""
    for name in (MARKER, f"m:{MARKER}:once:", f"m:1:once:{MARKER}", f"m:1:once:os={MARKER}=x"):
        with refused(StorageError, "not the name of a cell"):
            parse_cell(name)


def test_keys() -> None:
    """The keys of the store are these: another layout needs another LAYOUT number."""
    keys = PartitionKeys("p1f")
    assert keys.stream == "dither:{p1f}:stream"
    assert keys.backlog == "dither:{p1f}:backlog"
    assert keys.checkpoint == "dither:{p1f}:checkpoint"
    assert keys.dead == "dither:{p1f}:dead"
    assert keys.dirty == "dither:{p1f}:dirty"
    assert keys.seen("2026-12-02") == "dither:{p1f}:seen:2026-12-02"
    assert keys.cell("m:1:once:") == "dither:{p1f}:cell:m:1:once:"
    assert keys.outcome("m", "2026-11-29") == "dither:{p1f}:outcome:m:2026-11-29"
    assert keys.ever("m") == "dither:{p1f}:ever:m"
    assert keys.refused == "dither:{p1f}:refused"
    assert keys.attempt == "dither:{p1f}:attempt"
    assert keys.lease == "dither:{p1f}:lease"
    assert keys.archived == "dither:{p1f}:archived"
    assert keys.outcomes == "dither:{p1f}:outcomes"
    assert (META_KEY, METRICS_KEY, WORKERS_KEY) == ("dither:meta", "dither:metrics", "dither:workers")
    assert LAYOUT == 2


def test_keys_of_a_metric() -> None:
    """They are these, and all carry its name as hash tag: a script may touch several of them."""
    assert metric_key("m", 2) == "dither:metric:{m}:2"
    assert versions_key("m") == "dither:versions:{m}"
    assert estimates_key("m", 2, "2026-11-29T13") == "dither:estimate:{m}:2:2026-11-29T13"
    assert estimates_key("m", COMBINED, "once") == "dither:estimate:{m}:combined:once"
    assert rollups_key("m", 2, 28) == "dither:rollup:{m}:2:28"
    assert rollups_key("m", COMBINED, 7) == "dither:rollup:{m}:combined:7"
    assert totals_key("m", 2) == "dither:totals:{m}:2"
    assert published_key("m") == "dither:published:{m}"
    assert open_key("m") == "dither:open:{m}"


def test_estimate_fields() -> None:
    """All dimensions together, no dimensions, and one cell have fields of their own, and so have their companions."""
    fields = [estimate_field(dimensions) for dimensions in (None, (), (("os", "*"),))]
    assert fields == ["*", "", "os=%2A"]
    assert [companion_field(field) for field in fields] == ["n|*", "n|", "n|os=%2A"]


@given(names, dimension_sets)
def test_no_field_is_taken_for_a_companion(name: str, dimensions: Dimensions) -> None:
    """No dimensions begin as a companion does."""
    assert not estimate_field(dimensions).startswith(companion_field(""))
    assert not estimate_field(((name, "n|"),)).startswith(companion_field(""))


@pytest.mark.parametrize(("version", "window"), [(12, "2026-11-29T13"), (COMBINED, "once"), (1, "2026-W48")])
def test_published_members(version: int | str, window: str) -> None:
    """The window of a version is read back as it was written."""
    member = published_member(version, window)
    assert member == f"{version}:{window}"
    assert parse_published_member(member) == (str(version), window)


def _slot(tag: str) -> int:
    """The cluster slot of a hash tag, as the cluster specification defines it."""
    assert binascii.crc_hqx(b"123456789", 0) == 0x31C3  # the check value that the specification gives
    return binascii.crc_hqx(tag.encode(), 0) % CLUSTER_SLOTS


@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 48, MAX_PARTITIONS])
def test_tags_lie_in_the_middle_of_even_ranges(partitions: int) -> None:
    """Tag i has the middle slot of the i-th of P equal shares of the slots, so all differ."""
    tags = partition_tags(partitions)
    assert len(set(tags)) == partitions
    for index, tag in enumerate(tags):
        assert _slot(tag) == (2 * index + 1) * CLUSTER_SLOTS // (2 * partitions)
        assert re.fullmatch(r"p[0-9a-f]+", tag)


@pytest.mark.parametrize("partitions", [8, 48])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 6, 8])
def test_nodes_hold_even_numbers_of_partitions(partitions: int, nodes: int) -> None:
    """Nodes with even ranges of slots hold numbers of partitions that differ by one at most."""
    held = [0] * nodes
    for tag in partition_tags(partitions):
        held[_slot(tag) * nodes // CLUSTER_SLOTS] += 1
    assert max(held) - min(held) <= (partitions % nodes != 0)


def test_tags_never_change() -> None:
    """The tags of the default are pinned: other tags would lose every stored key."""
    assert partition_tags(8) == ("pdd3", "p128d", "pd19", "p57d", "p82da", "pa5d8", "p9129", "p18f0")


@pytest.mark.parametrize("partitions", [1, 8, 48])
def test_partition_of_spreads_batches(partitions: int) -> None:
    """Random ids fall evenly on the partitions; 1,000 a partition stay within five standard deviations."""
    counts = [0] * partitions
    for number in range(1_000 * partitions):
        counts[partition_of(hashlib.sha256(str(number).encode()).digest()[:16], partitions)] += 1
    assert all(abs(count - 1_000) < 5 * 1_000**0.5 for count in counts)


def test_partition_of_never_changes() -> None:
    """A retry after an upgrade must find its first try."""
    assert [partition_of(bytes([i] * 16), 8) for i in range(4)] == [5, 7, 0, 2]
