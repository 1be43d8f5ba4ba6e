"""Files of the archive: what is in a row, what is not, and how the folder stays whole."""

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither_estimator import archive_file
from dither_estimator.archive_file import Content, Group, describe, read, rewrite, write
from dither_estimator.archive_folder import Folder, Name, life_of
from dither_estimator.counting import count_packed
from dither_protocol.errors import MechanismError, StorageError
from dither_protocol.registry import Registry
from dither_protocol.storage import decode_entry, parse_cell
from support.archive import entries, shapes


@pytest.fixture(scope="module")
def registry() -> Registry:
    """A metric of each shape of report."""
    return shapes()


def groups_of(registry: Registry, payloads: list[bytes]) -> list[Group]:
    """The groups of stream entries."""
    return [
        (name, registry.metric(parse_cell(name).metric), view)
        for payload in payloads
        for name, _, _, view in decode_entry(payload)
    ]


def written(groups: list[Group], path: Path) -> Path:
    """Groups as a file."""
    with path.open("wb") as file:
        write(groups, file)
    return path


def counted(registry: Registry, path: Path) -> dict[str, tuple[int, list[int]]]:
    """Counters of each cell of a file, behind n."""
    found: dict[str, tuple[int, list[int]]] = {}
    for part in read(path):
        metric = registry.metric(part.key.metric)
        counters, n = count_packed(metric.mechanism, part.packed(metric.mechanism))
        name = f"{part.key.metric} {part.key.dimensions}"
        before = found.get(name, (0, [0] * len(counters)))
        found[name] = before[0] + n, [a + b for a, b in zip(before[1], counters.tolist(), strict=True)]
    return found


def test_a_row_says_nothing_about_its_batch(registry: Registry, tmp_path: Path) -> None:
    """No id, no time, no place: these are all the columns that there are, and the file itself has no more (P5)."""
    path = written(groups_of(registry, entries(registry, 10)), tmp_path / "x.parquet")
    schema = pq.read_schema(path)
    cell = ["metric", "version", "params", "window_label", "dimensions"]
    assert schema.names == [*cell, "seed", "value", "bits"]
    about = schema.metadata[archive_file.METADATA]
    assert set(pq.read_metadata(path).metadata) <= {archive_file.METADATA, b"ARROW:schema"}
    assert about.startswith(b'{"layout":1,"contents":[["grr","2026-11-29",20],')


def test_the_order_of_arrival_does_not_show(registry: Registry, tmp_path: Path) -> None:
    """The same reports in whatever batches and order make the same bytes: rows are sorted, not shuffled."""
    payloads = entries(registry, 60)
    first = written(groups_of(registry, payloads), tmp_path / "a").read_bytes()
    random.Random(1).shuffle(payloads)  # noqa: S311  a test's order
    assert written(groups_of(registry, payloads), tmp_path / "b").read_bytes() == first


@pytest.mark.parametrize("rows", [1 << 17, 7], ids=["one row group", "many row groups"])
def test_every_shape_survives(
    registry: Registry, tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the file and counted at once: the same n and counters for every cell."""
    monkeypatch.setattr(archive_file, "ROW_GROUP_ROWS", rows)
    groups = groups_of(registry, entries(registry, 100))
    path = written(groups, tmp_path / "x.parquet")
    expected: dict[str, bytes] = {}
    for name, _, view in groups:
        expected[name] = expected.get(name, b"") + view
    found = counted(registry, path)
    assert len(found) == len(expected)
    for name, packed in expected.items():
        cell = parse_cell(name)
        dimensions = json.dumps(dict(cell.dimensions))
        counters, n = count_packed(registry.metric(cell.metric).mechanism, packed)
        assert found[f"{cell.metric} {dimensions}"] == (n, counters.tolist())
    assert sum(content.rows for content in describe(path)) == 100 * 2 * 5


def test_rows_in_any_order_are_read(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another program chose from an archive, plain strings in place of dictionaries, shuffled."""
    monkeypatch.setattr(archive_file, "MAX_RUNS", 10)
    path = written(groups_of(registry, entries(registry, 40)), tmp_path / "x.parquet")
    rows = pq.read_table(path)
    rows = rows.take(pa.array(np.random.default_rng(2).permutation(len(rows))))
    plain = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in rows.schema]
    rows = rows.cast(pa.schema(list(zip(rows.schema.names, plain, strict=True))))
    pq.write_table(rows.append_column("more", pa.nulls(len(rows))), tmp_path / "y.parquet")
    assert counted(registry, tmp_path / "y.parquet") == counted(registry, path)


def test_a_window_is_taken_out_and_the_rest_stays(registry: Registry, tmp_path: Path) -> None:
    """Rows, and what the file says about itself."""
    newer = entries(registry, 20)
    both = groups_of(registry, entries(registry, 30, label="2026-11-28") + newer)
    path = written(both, tmp_path / "x.parquet")
    with (tmp_path / "y.parquet").open("wb") as file:
        rewrite(path, lambda metric, label: metric == "oue" or label == "2026-11-28", file)
    left = [Content(name, "2026-11-29", 40) for name in sorted(registry.metrics) if name != "oue"]
    assert describe(tmp_path / "y.parquet") == left
    expected = written(groups_of(registry, newer), tmp_path / "z.parquet")
    kept = counted(registry, tmp_path / "y.parquet")
    assert kept == {name: rows for name, rows in counted(registry, expected).items() if "oue" not in name}


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"no parquet at all, but long enough to have a footer of eight bytes"]
)
def test_what_is_no_file_of_an_archive_is_an_error(tmp_path: Path, content: bytes) -> None:
    """Named, whether its footer or its rows are read."""
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    for reading in (describe, lambda path: list(read(path))):
        with pytest.raises(StorageError, match=r"x\.parquet"):
            reading(path)


def test_other_columns_are_an_error(registry: Registry, tmp_path: Path) -> None:
    """A Parquet file of somebody else, one without a footer of ours, one of a later version."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    for reading in (describe, lambda path: list(read(path))):
        with pytest.raises(StorageError):
            reading(tmp_path / "x.parquet")
    rows = pq.read_table(written(groups_of(registry, entries(registry, 2)), tmp_path / "y.parquet"))
    pq.write_table(
        rows.replace_schema_metadata({"dither": '{"layout":2,"contents":[]}'}), tmp_path / "z.parquet"
    )
    with pytest.raises(StorageError, match="another version"):
        describe(tmp_path / "z.parquet")


def test_rows_of_another_shape_are_an_error(registry: Registry, tmp_path: Path) -> None:
    """An index where bits are expected, bits of another size, a pair without its seed."""
    path = written(groups_of(registry, entries(registry, 2)), tmp_path / "x.parquet")
    parts = {part.key.metric: part for part in read(path)}
    for name, other in (("grr", "oue"), ("oue", "grr"), ("grr", "olh")):
        with pytest.raises(MechanismError):
            parts[name].packed(registry.metric(other).mechanism)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An open folder."""
    found = Folder(tmp_path / "archive")
    found.open("identity", begun=False)
    return found


def put(folder: Folder, name: Name, *, visible: bool = False) -> None:
    """A file whose content is its token."""
    folder.write(name, lambda file: file.write(name.token.encode()))
    if visible:
        folder.reveal(name)


def shown(folder: Folder) -> dict[str, str]:
    """The visible files with their contents."""
    return {path.name: path.read_text() for path in folder.files()}


def test_a_file_is_visible_only_once_it_is_committed(folder: Folder) -> None:
    """Until then no pattern of readers finds it; revealing it twice is no error."""
    name = Name("p0", 1, "a.1")
    put(folder, name)
    assert list(folder.path.glob("**/*.parquet")) == []
    folder.reveal(name)
    folder.reveal(name)
    assert shown(folder) == {"p0-00000001.parquet": "a.1"}


def test_a_write_that_fails_leaves_no_trace(folder: Folder) -> None:
    """Half a file is removed."""

    def fail(file: io.BufferedWriter) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        folder.write(Name("p0", 1, "a.1"), fail)  # type: ignore[arg-type]
    assert os.listdir(folder.path / ".unfinished") == ["lock"]


def test_settling_shows_what_was_committed_and_removes_what_was_not(folder: Folder) -> None:
    """By the token of the store; other partitions and what came after the survey are left alone."""
    put(folder, Name("p0", 1, "a.1"), visible=True)
    for name in (Name("p0", 2, "a.2"), Name("p0", 2, "a.3"), Name("p0f", 2, "a.4")):
        put(folder, name)
    found = folder.survey("p0", 2)
    put(folder, Name("p0", 3, "a.5"))
    folder.settle(found, "a.3")
    assert shown(folder) == {"p0-00000001.parquet": "a.1", "p0-00000002.parquet": "a.3"}
    unfinished = {path.name for path in (folder.path / ".unfinished").glob("p*")}
    assert unfinished == {"p0-00000003-a.5", "p0f-00000002-a.4"}


def test_files_that_are_ahead_of_the_store_are_put_aside(folder: Folder) -> None:
    """Not removed: a person may want to look at them."""
    for number in (1, 2, 3):
        put(folder, Name("p0", number, f"a.{number}"), visible=True)
    folder.settle(folder.survey("p0", 1), "a.1")
    assert list(shown(folder)) == ["p0-00000001.parquet"]
    assert sorted(path.name for path in folder.path.glob("*.superseded")) == [
        "p0-00000002.parquet.superseded",
        "p0-00000003.parquet.superseded",
    ]


def test_an_archive_that_begins_again_goes_on_with_its_numbers(folder: Folder) -> None:
    """And shows what an earlier life left unfinished: those reports are nowhere else."""
    put(folder, Name("p0", 7, "a.7"), visible=True)
    for token in ("a.8", "a.9", "b.1"):
        put(folder, Name("p0", 8, token))
    assert folder.resume(folder.survey("p0", None), "b") == 8
    assert shown(folder) == {"p0-00000007.parquet": "a.7", "p0-00000008.parquet": "a.8"}
    assert os.listdir(folder.path / ".unfinished") == ["lock"]


def test_an_archive_that_begins_for_the_first_time_has_no_file(folder: Folder) -> None:
    """What its own life has not committed is in the stream still, and is removed."""
    put(folder, Name("p0", 1, "b.1"))
    assert folder.resume(folder.survey("p0", None), "b") == 0
    assert shown(folder) == {}


def test_a_token_names_the_life_of_its_archive() -> None:
    """Before the first file, and after it."""
    assert life_of("-a1b2") == life_of("a1b2.0c0d") == "a1b2"


def test_a_worker_without_an_archive_never_imports_pyarrow() -> None:
    """Its start stays as quick as it was."""
    code = (
        "import sys; from dither_estimator import worker; from dither_estimator.store import Store;"
        "worker.Worker(Store('redis://127.0.0.1:1')); sys.exit('pyarrow' in sys.modules)"
    )
    assert run_code(code).returncode == 0


def test_an_archive_without_pyarrow_says_what_to_install() -> None:
    """A sentence and the exit code of a wrong configuration, before anything is counted."""
    code = "import sys; sys.modules['pyarrow'] = None; from dither_estimator.worker import main; sys.exit(main())"
    ended = run_code(code, DITHER_ARCHIVE="/nowhere", DITHER_STORE_URL="redis://127.0.0.1:1")
    assert ended.returncode == 78
    assert "pip install 'dither[archive]'" in ended.stderr


def run_code(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python as a process."""
    command = [sys.executable, "-c", code]
    environment = os.environ | environ
    return subprocess.run(
        command, env=environment, timeout=60, stderr=subprocess.PIPE, text=True, check=False
    )
