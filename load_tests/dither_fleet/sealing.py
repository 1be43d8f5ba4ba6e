"""Sealed batches of many devices at once: each device has its own, with a fresh random id, as the SDK seals them.

Everything but the datum is the same for all devices of one combination of dimensions, so it is encoded once.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dither_fleet.expectation import MALFORMED, Cell, Fate
from dither_fleet.fleet import MetricTruth
from dither_fleet.population import draw
from dither_fleet.samplers import base64url_rows, randomize_many
from dither_fleet.visit import Question, Sheet
from dither_protocol.errors import Rejection
from dither_protocol.mechanisms import Data
from dither_protocol.registry import canonical_dimensions
from dither_protocol.wire import BATCH_ID_BYTES, MAX_REPORTS, Report, encode_report

Truths = Mapping[tuple[str, int], MetricTruth]

_NO_DATUM: Final = 0


class Sealed(NamedTuple):
    """A batch, and what must become of it.

    Attributes:
        body: the bytes of every try.
        fate: what the server must do with it.
        trouble: what befalls its first try: one of `faults.BATCH_TROUBLES`, or empty.
    """

    body: bytes
    fate: Fate
    trouble: str = ""


def fresh_ids(count: int) -> list[str]:
    """Random batch ids as they stand on the wire: 128 bits of the operating system's each."""
    drawn = np.frombuffer(os.urandom(BATCH_ID_BYTES * count), dtype=np.uint8)
    return base64url_rows(drawn.reshape(count, BATCH_ID_BYTES))


def datum_texts(data: Sequence[Data]) -> list[str]:
    """The ``data`` of reports of one mechanism as JSON."""
    match data:
        case [str(), *_]:
            return [f'"{datum}"' for datum in data]
        case [[*_], *_]:
            return [f"[{seed},{value}]" for seed, value in data]  # type: ignore[str-unpack, misc]
    return [str(datum) for datum in data]


class People:
    """Devices that belong to the same people: their public attributes, drawn once for all their reports.

    Args:
        count: how many.
        generator: of the population.
    """

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        self.count = count
        self.generator = generator
        self._attributes: dict[tuple[str, tuple[str, ...]], npt.NDArray[np.int64]] = {}

    def attribute(self, name: str, shares: Mapping[str, float]) -> npt.NDArray[np.int64]:
        """Index of each device's value of a dimension, int64 of shape (count,)."""
        key = (name, tuple(shares))
        if key not in self._attributes:
            self._attributes[key] = draw(list(shares.values()), self.count, self.generator)
        return self._attributes[key]


class _Form:
    """One question with all that can be known before any device answers it."""

    def __init__(self, question: Question, truth: MetricTruth) -> None:
        metric, window = question.metric, question.window
        self.metric = metric
        self.rejected = question.rejected
        self._truth = truth
        names = list(truth.dimensions)
        self.heads: list[str] = []
        self.cells: list[Cell] = []
        for values in product(*truth.dimensions.values()):
            given = dict(zip(names, values, strict=True))
            report = Report(metric.name, metric.version, metric.params_hash, window.label, given, _NO_DATUM)
            self.heads.append(encode_report(report).removesuffix(f"{_NO_DATUM}}}"))
            self.cells.append(Cell(metric.name, metric.version, window.label, canonical_dimensions(given)))

    def combinations(self, people: People) -> npt.NDArray[np.int64]:
        """Index of each device's combination of dimensions, int64 of shape (count,)."""
        found = np.zeros(people.count, dtype=np.int64)
        for name, shares in self._truth.dimensions.items():
            found = found * len(shares) + people.attribute(name, shares)
        return found

    def reports(self, combinations: npt.NDArray[np.int64], generator: np.random.Generator) -> list[str]:
        """Encoded reports of devices with these combinations: true values by the generator, noise by the system."""
        values = draw(self._truth.shares, combinations.size, generator)
        texts = datum_texts(randomize_many(self.metric.mechanism, values))
        return [f"{self.heads[c]}{t}}}" for c, t in zip(combinations.tolist(), texts, strict=True)]


class Sealer:
    """Makes the batches of one sheet.

    Args:
        sheet: the questions of one batch.
        truths: what is true, by metric and version.
    """

    def __init__(self, sheet: Sheet, truths: Truths) -> None:
        self._slots = [
            [_Form(question, truths[question.metric.name, question.metric.version]) for question in slot]
            for slot in sheet.slots
        ]
        self._refused = sheet.refused
        self._tail = f'","until":"{sheet.until.isoformat()}","reports":['
        self._fates: dict[tuple[int, ...], Fate] = {}

    def seal(self, people: People, together: int = 1) -> list[list[Sealed]]:
        """The batches of each device: its own one, or (``together``) one for so many, which the first of them sends."""
        columns, choices = [], []
        for slot in self._slots:
            reports, chosen = self._answers(slot, people)
            columns.append(reports)
            choices.append(chosen)
        fates = map(self._fate, zip(*choices, strict=True))
        answers = list(zip(fates, zip(*columns, strict=True), strict=True))
        # Shared batches are no larger than the protocol allows.
        size = max(1, min(together, MAX_REPORTS // len(self._slots)))
        ids = fresh_ids(-(-people.count // size))
        if size == 1:
            return [[self._sealed(number, *answer)] for number, answer in zip(ids, answers, strict=True)]
        made: list[list[Sealed]] = [[] for _ in range(people.count)]
        for number, at in zip(ids, range(0, people.count, size), strict=True):
            shared = answers[at : at + size]
            together_said = tuple(report for _, mine in shared for report in mine)
            made[at].append(self._sealed(number, _together([fate for fate, _ in shared]), together_said))
        return made

    def _sealed(self, number: str, fate: Fate, reports: tuple[str, ...]) -> Sealed:
        return Sealed(f'{{"batch":"{number}{self._tail}{",".join(reports)}]}}'.encode(), fate)

    def _answers(self, slot: list[_Form], people: People) -> tuple[list[str], list[int]]:
        """A report of each device, and by which question and combination it is: number of that pair in the slot."""
        if len(slot) == 1:
            combinations = slot[0].combinations(people)
            return slot[0].reports(combinations, people.generator), combinations.tolist()
        lots = people.generator.integers(len(slot), size=people.count)
        reports = np.empty(people.count, dtype=object)
        chosen = np.empty(people.count, dtype=np.int64)
        before = 0
        for number, form in enumerate(slot):
            (mine,) = np.nonzero(lots == number)
            combinations = form.combinations(people)[mine]
            reports[mine] = form.reports(combinations, people.generator)
            chosen[mine] = before + combinations
            before += len(form.cells)
        return reports.tolist(), chosen.tolist()

    def _fate(self, choice: tuple[int, ...]) -> Fate:
        found = self._fates.get(choice)
        if found is None:
            found = self._fates[choice] = self._new_fate(choice)
        return found

    def _new_fate(self, choice: tuple[int, ...]) -> Fate:
        cells, rejected = [], []
        for slot, chosen in zip(self._slots, choice, strict=True):
            pairs = [(form, cell) for form in slot for cell in form.cells]
            form, cell = pairs[chosen]
            if form.rejected:
                rejected.append(form.rejected)
            else:
                cells.append(cell)
        return Fate(tuple(cells), tuple(rejected), self._refused)


def _together(fates: Sequence[Fate]) -> Fate:
    """The fate of a batch of several devices. Cells are sorted but for the last, so that few fates are different."""
    cells = [cell for fate in fates for cell in fate.cells]
    rejected = sorted(reason for fate in fates for reason in fate.rejected)
    return Fate((*sorted(cells[:-1]), *cells[-1:]), tuple(rejected), fates[0].refused)


def with_bad_report(sealed: Sealed) -> Sealed:
    """The same batch, its last report with data that no mechanism makes; one that is wrong already stays as it is."""
    fate = sealed.fate
    if fate.refused or fate.rejected:
        return sealed
    head, _, _ = sealed.body.rpartition(b'"data":')
    damaged = Fate(fate.cells[:-1], (Rejection.PAYLOAD_INVALID.value,))
    return sealed._replace(body=head + b'"data":{}}]}', fate=damaged)


def with_bad_body(sealed: Sealed) -> Sealed:
    """The same batch, cut off: no JSON any more, so there is nothing to account for."""
    return sealed._replace(body=sealed.body[:-2], fate=Fate((), (), MALFORMED))
