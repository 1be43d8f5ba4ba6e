"""Retention of the archive: files are written once more without the windows that go, or removed where none stays.

A file holds the reports of many metrics and windows: one file for each of them would make hundreds of small files a
minute. What a file is about stands in its footer, so that only files that change are read.
"""

import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from dither_estimator.archive_file import Content, describe, rewrite
from dither_estimator.archive_folder import Folder
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Choice, Pruned
from dither_protocol.errors import StorageError

_log = logging.getLogger("dither_estimator")


class ArchivePruner:
    """Forgets windows in an archive.

    Args:
        folder: of the archive.
        dry: only count what would go.
    """

    def __init__(self, folder: Folder, *, dry: bool = False) -> None:
        self._folder = folder
        self._dry = dry
        self._due: dict[str, datetime | None] = {}
        self._rules: object = None

    def prune(self, choice: Choice) -> Iterator[Pruned]:
        """Forget the chosen windows, one file at each step.

        Raises:
            OSError: the folder cannot be read or written; a file that was not done stays as it was.
            StorageError: a file is none of an archive.
        """
        for path in self._folder.files():
            yield self._file(path, choice)

    def expire(self, calendar: Calendar, now: datetime) -> Iterator[Pruned]:
        """Forget what has expired; files in which nothing is due are not even opened.

        A file that is none of an archive is left alone, and said to be.
        """
        if calendar.rules() != self._rules:
            self._rules, self._due = calendar.rules(), {}
        for path in self._folder.files():
            due = self._due.get(path.name, now)
            if due is not None and due <= now:
                yield self._expire(path, calendar, now)

    def _expire(self, path: Path, calendar: Calendar, now: datetime) -> Pruned:
        try:
            pruned = self._file(path, lambda metric, label: calendar.expired(metric, label, now))
            dates = [calendar.dates(content.metric, content.window) for content in self._contents(path)]
        except StorageError as error:
            _log.warning("archive: nothing of %s is forgotten: %s", path, error)
            pruned, dates = Pruned(), []
        expire = (each.expires for each in dates if each is not None and each.expires is not None)
        self._due[path.name] = min(expire, default=None)
        return pruned

    def _file(self, path: Path, choice: Choice) -> Pruned:
        going = self._going(path, choice)
        if going and not self._dry:
            with self._folder.changing():  # somebody else may have been faster: it is looked up once more
                going = self._going(path, choice)
                if len(going) == len(self._contents(path)):
                    self._folder.remove(path)
                elif going:
                    self._folder.replace(path, lambda file: rewrite(path, choice, file))
        return Pruned(archived=sum(content.rows for content in going))

    def _going(self, path: Path, choice: Choice) -> list[Content]:
        return [content for content in self._contents(path) if choice(content.metric, content.window)]

    def _contents(self, path: Path) -> list[Content]:
        try:
            return describe(path)
        except FileNotFoundError:
            return []
