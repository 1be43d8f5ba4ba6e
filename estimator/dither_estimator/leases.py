"""Leases: which worker counts which partition, and which one publishes.

They save work, and nothing else: a commit goes through by compare-and-set alone. A worker that believes in a lease that
it has lost does work for nothing, and no harm.

The living workers share the partitions evenly, at most ceil(partitions / workers) each. All see the same list of living
workers, so whoever has more than its share gives some back, and whoever has less takes what is free.
"""

import logging
import time
from typing import Final

from dither_estimator.presence import TTL_MS, Fate, Presence
from dither_estimator.store import Store, StoreUnavailableError
from dither_protocol.storage import PUBLISHER_KEY, PartitionKeys, partition_tags

RENEW_S: Final = 0.9
"""Leases are renewed after so long: at every tick of an idle worker, which are a second apart, and no oftener
where ticks follow each other at once. Five renewals must fail before a lease lapses."""

_log = logging.getLogger("dither_estimator")


class Leases:
    """The leases of one worker.

    Args:
        store: where they are.
        name: of the worker; the leases of earlier processes of that name are taken over at once.

    Attributes:
        partitions: those that this worker may count, as far as it knows.
        publishing: whether it may publish.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.partitions: tuple[int, ...] = ()
        self.publishing = False
        self._store = store
        self._presence = Presence(store, name)
        self._namesakes = f"{name}/"
        self._keys: tuple[str, ...] = ()
        self._renewed = float("-inf")

    @property
    def owner(self) -> str:
        """How this process signs."""
        return self._presence.owner

    def refresh(self, partitions: int) -> None:
        """Renew, share, take: where the last time is long enough ago.

        Args:
            partitions: how many the store has.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        if partitions and time.monotonic() - self._renewed >= RENEW_S:
            self._keys = tuple(PartitionKeys(tag).lease for tag in partition_tags(partitions))
            self._share(self._presence.beat())
            self._namesakes, self._renewed = "", time.monotonic()

    def _share(self, living: list[str]) -> None:
        *holders, publisher = self._store.holders([*self._keys, PUBLISHER_KEY])
        share = fair_share(len(self._keys), len(living))
        held = self._keep(holders, share)
        for partition in self._in_turn(living):
            if len(held) >= share:
                break
            if partition not in held and self._take(self._keys[partition], holders[partition], living):
                held.append(partition)
        self.publishing = self._take(PUBLISHER_KEY, publisher, living)
        if set(held) != set(self.partitions):
            mine = ", ".join(map(str, sorted(held))) or "none"
            _log.info("counting partitions %s of %d; living workers: %d", mine, len(self._keys), len(living))
        self.partitions = tuple(held)

    def _keep(self, holders: list[str | None], share: int) -> list[int]:
        """Renew what is this worker's, up to its share, and give back the rest; the partitions that it still has."""
        own = [partition for partition, holder in enumerate(holders) if holder == self.owner]
        own.sort(key=lambda partition: partition not in self.partitions)
        for partition in own[share:]:
            self._store.release(self._keys[partition], self.owner)
        # All in one go: a store that writes every change to the disk at once does so once for all of them. Should one
        # of them be another's by now, that one lasts no longer for it than it does anyway.
        renewed = self._store.renew([self._keys[partition] for partition in own[:share]], TTL_MS)
        return [partition for partition, is_held in zip(own[:share], renewed, strict=True) if is_held]

    def _in_turn(self, living: list[str]) -> list[int]:
        """All partitions, beginning at this worker's place, so that those who start together seldom meet."""
        everyone = list(range(len(self._keys)))
        place = living.index(self.owner) * len(everyone) // len(living)
        return everyone[place:] + everyone[:place]

    def _take(self, key: str, holder: str | None, living: list[str]) -> bool:
        """Take a lease, unless a living worker other than this one holds it, that being no earlier self."""
        if holder in living and holder != self.owner:
            return False
        return self._store.lease(key, self.owner, TTL_MS, self._namesakes)

    def fate(self, owner: str) -> Fate:
        """What became of a worker."""
        return self._presence.fate(owner)

    def lost_contact(self) -> None:
        """The store was away: look at everything anew, and judge nobody by the silence."""
        self._presence.lost_contact()
        self._renewed = float("-inf")

    def leave(self) -> None:
        """Give everything back, so that others take it at once."""
        try:
            for key in [self._keys[partition] for partition in self.partitions] + [PUBLISHER_KEY]:
                self._store.release(key, self.owner)
            self._presence.leave()
        except StoreUnavailableError as error:
            _log.info("the leases could not be given back, and will lapse (%s)", error)
        self.partitions, self.publishing = (), False


def fair_share(partitions: int, workers: int) -> int:
    """The most partitions that one of so many living workers counts."""
    return -(-partitions // workers)
