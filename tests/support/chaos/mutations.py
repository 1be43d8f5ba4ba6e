"""Rooms with one rule broken on purpose: copies of the packages, patched, for the processes of a fleet."""

import importlib.util
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.chaos import aimed
from support.chaos.stage import Scene
from support.chaos.violations import Fault

Patch = tuple[str, str, str, str]
"""Package, file in it, text that must stand there exactly once, what takes its place."""

NO_LEASES: Final[tuple[Patch, ...]] = (
    (
        "dither_estimator",
        "leases.py",
        "return self._store.lease(key, self.owner, TTL_MS, self._namesakes)",
        "return True",
    ),
    ("dither_estimator", "leases.py", "return -(-partitions // workers)", "return partitions"),
)
"""Every worker counts every partition: leases save work, and correctness must not need them."""


@dataclass(frozen=True)
class Mutation:
    """One broken rule.

    Attributes:
        patches: how it is broken.
        scene: aimed at the rule.
        faults: what an audit must find, each of them.
    """

    patches: tuple[Patch, ...]
    scene: Scene
    faults: frozenset[Fault]


def mutated_rooms(folder: Path, patches: Iterable[Patch]) -> Path:
    """A folder with copies of the packages that ``patches`` change, for the front of a path."""
    for package, file, old, new in patches:
        copy = folder / package
        if not copy.exists():
            shutil.copytree(_folder_of(package), copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{package}/{file} has not this text once, mend the mutation:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


MUTATIONS: Final = {
    "apply without compare-and-set": Mutation(
        (
            *NO_LEASES,
            ("dither_estimator", "scripts/apply.lua", "if current ~= ARGV[1] then\n  return 0\nend\n", ""),
        ),
        aimed.late_apply,
        frozenset({Fault.LOST, Fault.UNBALANCED}),
    ),
    "cells read before the checkpoint": Mutation(
        (
            *NO_LEASES,
            (
                "dither_estimator",
                "worker.py",
                "zip(names, self._store.cells(partition, names), strict=True)",
                "[(name, self._early[name] if name in self._early else self._store.cells(partition, [name])[0])"
                " for name in names]",
            ),
            (
                "dither_estimator",
                "worker.py",
                "        checkpoint = self._store.checkpoint(partition)\n",
                "        from dither_protocol.storage import decode_entry\n"
                "        waiting, _ = self._read(partition, self._store.checkpoint(partition))\n"
                "        if not waiting:\n            return False\n"
                "        names = sorted({name for _, payload in waiting for name, *_ in decode_entry(payload)})\n"
                "        self._early = dict(zip(names, self._store.cells(partition, names), strict=True))\n"
                "        checkpoint = self._store.checkpoint(partition)\n",
            ),
        ),
        aimed.late_cells,
        frozenset({Fault.LOST}),
    ),
    "batch ids forgotten": Mutation(
        (("dither_server", "scripts/admit.lua", "    redis.call('SADD', KEYS[1], ARGV[1])\n", ""),),
        aimed.lost_answers,
        frozenset({Fault.DOUBLED, Fault.TAKEN_TWICE}),
    ),
}
