"""Publishing what belongs to one window: the estimate over all dimensions, its cells, what is combined from it.

Each method is a generator that stops after every estimate and every slice of cells that was read.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dither_estimator.cells import pack
from dither_estimator.definitions import Definitions
from dither_estimator.faults import FAULTS, Faults
from dither_estimator.publication import Part, combined_document, estimate_document, window_scope
from dither_estimator.published import CALL_BYTES, Draft, Place, Published, Result, WindowKey
from dither_estimator.rollup import Rollups, rolls_up
from dither_estimator.store import Store
from dither_estimator.sums import Packed, Sums, combinations, summed
from dither_protocol.errors import StorageError, WindowError
from dither_protocol.registry import Metric
from dither_protocol.storage import COMBINED, Cell, estimate_field, parse_cell

CLEAN_CELLS: Final = 64
"""Marks are taken off when this many cells were published, and at the end of the round."""

Marks = Sequence[Mapping[str, bytes]]
"""By partition: the checkpoint of the last change of each unpublished cell, by name."""


@dataclass(frozen=True)
class Round:
    """What one round of publishing knows when it begins.

    Attributes:
        sums: reads the cells, later than the rest.
        marks: of the cells that are unpublished.
        watermark: before which every report is counted.
        published: cells whose marks are still to be taken off.
    """

    sums: Sums
    marks: Marks
    watermark: datetime
    published: list[str] = field(default_factory=list)


@dataclass
class _Task:
    """One window of one version.

    Attributes:
        round: the round that it is published in.
        metric: the version.
        place: of the window.
        final: whether its estimates are.
        refused: whether the estimate over all dimensions is another publisher's, from more reports.
        damaged: whether some estimate could not be made.
    """

    round: Round
    metric: Metric
    place: Place
    final: bool
    refused: bool = False
    damaged: bool = False


class WindowPublisher:
    """Publishes one window at a time.

    Args:
        store: where the marks of unpublished cells are.
        published: where estimates go.
        definitions: gives the metrics.
        faults: notes what is damaged.
    """

    def __init__(self, store: Store, published: Published, definitions: Definitions, faults: Faults) -> None:
        self._store = store
        self._published = published
        self._definitions = definitions
        self._faults = faults
        self._rollups = Rollups(published, definitions)

    def window(
        self, now: Round, key: WindowKey, changed: Sequence[Cell], *, every_cell: bool = False
    ) -> Generator[None, None, bool]:
        """Publish a window of one version: over all dimensions, then the changed cells.

        Only when the sum contains a cell, and the cell is published itself, its mark is taken off.

        Args:
            now: the round.
            key: of the window.
            changed: cells that are marked.
            every_cell: publish those too that were published before, as when the window closes.

        Returns:
            Whether that is done; False where it has to be tried again.

        Raises:
            StorageError, RegistryError, WindowError: the definition or the label is damaged.
        """
        name, version, label = key
        metric = self._definitions(name, int(version))
        window = metric.parse_window(label)
        place = Place(name, metric.version, window, metric.closes_at(window))
        task = _Task(now, metric, place, final=place.closes <= now.watermark)
        try:
            yield from self._over_all(task)
        except FAULTS as error:
            self._faults.note(f"{name}:{version}:{label}", error)
            task.damaged = True
        complete = not task.damaged
        cells = self._with_published(task, changed) if every_cell else changed
        known = set(combinations(metric))
        for some in now.sums.slices(metric, cells, CLEAN_CELLS):
            wanted = [cell for cell in some if cell.dimensions in known] if metric.dimensions else []
            damaged = yield from self._cells(task, wanted)
            if complete:
                now.published.extend(cell.name for cell in some if cell.name not in damaged)
                if len(now.published) >= CLEAN_CELLS:
                    self.clean(now)
        if task.damaged:
            return False
        closed = task.final and self._published.close(place)
        return not every_cell or closed or not (task.final or task.refused)

    def _over_all(self, task: _Task) -> Iterator[None]:
        """Publish the estimate over all dimensions, and those over several versions or windows that contain it."""
        metric, place = task.metric, task.place
        n, counters = yield from task.round.sums.total(metric, place.window.label)
        if not n:
            return  # whatever there was is gone
        scope = window_scope(place.window, place.closes, final=task.final)
        document = estimate_document(metric, scope, None, counters, n)
        draft = Draft(estimate_field(None), n, task.final, document)
        total = pack(n, counters) if rolls_up(metric) else None
        (result,) = self._published.publish(place, [draft], task.round.watermark, total)
        task.final |= result is Result.FINAL_STANDS
        task.refused = result is Result.LATER_STANDS
        yield
        yield from self.combined(task.round, metric.name, place.window.label, (counters, metric, n))
        if task.final and rolls_up(metric):
            yield from self._rollups.publish(metric, place.window, task.round.watermark)

    def combined(
        self, now: Round, name: str, label: str, own: Part | None = None
    ) -> Generator[None, None, bool]:
        """Publish the estimate over all versions that have reports about the same window, where there are several.

        Args:
            now: the round.
            name: of the metric.
            label: of the window.
            own: what one of the versions contributes, read already.

        Returns:
            Whether that is done; False where it has to be tried again.
        """
        parts: dict[int, Part] = {} if own is None else {own[1].version: own}
        for metric in self._definitions.versions(name):
            if metric.version not in parts and _has_window(metric, label):
                n, counters = yield from now.sums.total(metric, label)
                if n:
                    parts[metric.version] = (counters, metric, n)
        if len(parts) < 2:
            return own is not None
        windows = [(metric.parse_window(label), metric) for _, metric, _ in parts.values()]
        closes = max(metric.closes_at(window) for window, metric in windows)
        final = closes <= now.watermark
        window = max((window for window, _ in windows), key=lambda each: each.end)
        document = combined_document(window_scope(window, closes, final=final), parts)
        draft = Draft(estimate_field(None), sum(n for _, _, n in parts.values()), final, document)
        place = Place(name, COMBINED, window, closes)
        self._published.publish(place, [draft], now.watermark)
        yield
        return not final or self._published.close(place)

    def _cells(self, task: _Task, cells: Sequence[Cell]) -> Generator[None, None, set[str]]:
        """Publish cells, several in one call; the names of those that are damaged."""
        drafts: list[Draft] = []
        damaged: set[str] = set()
        for cell, packed in zip(cells, task.round.sums.read(cells), strict=True) if cells else ():
            try:
                draft = self._draft(task, cell, packed)
            except FAULTS as error:
                self._faults.note(cell.name, error)
                damaged.add(cell.name)
                continue
            if draft is not None:
                drafts.append(draft)
            if sum(len(each.text) for each in drafts) >= CALL_BYTES:
                self._published.publish(task.place, drafts, task.round.watermark)
                drafts = []
            yield
        if drafts:
            self._published.publish(task.place, drafts, task.round.watermark)
        task.damaged |= bool(damaged)
        return damaged

    def _draft(self, task: _Task, cell: Cell, packed: Packed) -> Draft | None:
        n, counters = summed(task.metric, packed)
        if not n:
            return None
        scope = window_scope(task.place.window, task.place.closes, final=task.final)
        document = estimate_document(task.metric, scope, cell.dimensions, counters, n)
        return Draft(estimate_field(cell.dimensions), n, task.final, document)

    def _with_published(self, task: _Task, changed: Sequence[Cell]) -> list[Cell]:
        """The changed cells, then the others that have a published estimate."""
        place, metric = task.place, task.metric
        cells = dict.fromkeys(changed)
        for each in self._published.fields(place):
            if each != estimate_field(None):
                name = f"{metric.name}:{metric.version}:{place.window.label}:{each}"
                try:
                    cells[parse_cell(name)] = None
                except StorageError as error:
                    self._faults.note(f"a field of {place.key}", error)
        return list(cells)

    def clean(self, now: Round) -> None:
        """Take off the marks of the cells that were published; one that was marked again meanwhile stays so."""
        for partition, dirty in enumerate(now.marks):
            self._store.clean(partition, [(name, dirty[name]) for name in now.published if name in dirty])
        now.published.clear()


def _has_window(metric: Metric, label: str) -> bool:
    try:
        metric.parse_window(label)
    except WindowError:
        return False
    return True
