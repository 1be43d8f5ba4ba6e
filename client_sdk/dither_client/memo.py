"""What a device keeps for memoised metrics: a secret, keyed tags of the values it had, the last permanent answer.

A permanent answer is not stored: it is a function of the secret, the metric and the value, so it is the same in every
process, thread and restart that shares the state. HMAC-SHA-256 (RFC 2104) is taken as a pseudorandom function, hence
the epsilon of permanent answers is a computational one (invariant P4).

The tags count distinct values. Whoever holds the state directory, secret included, could test guesses against
them: the one stated exception of invariant P1.

Everything here happens in the transaction of the report, and a no of the person erases it (invariant P8).
"""

import hmac
import json
import sqlite3
from typing import Final, cast

from dither_client import entropy
from dither_client.sampling.memoized import Digits, permanent_answer, second_round
from dither_client.state import read_note, write_note
from dither_protocol.mechanisms import Data, Memoized
from dither_protocol.registry import Metric

_NOTE: Final = "memo secret"
_SECRET_BYTES: Final = 32
_TAG_BYTES: Final = 16
_TAG: Final = b"tag"
_ANSWER: Final = b"answer"
_BLOCK: Final = "sha256"
_BLOCK_BYTES: Final = 32


def begun(connection: sqlite3.Connection, metric: Metric) -> bool:
    """Whether this metric was answered under the present secret, and so is charged in full already."""
    return (
        connection.execute(
            "SELECT 1 FROM memos WHERE metric = ? AND version = ? AND params = ?", _key(metric)
        ).fetchone()
        is not None
    )


def report(connection: sqlite3.Connection, metric: Metric, index: int) -> Data:
    """A fresh report over the permanent answer to a value, inside the transaction of its charge.

    A value beyond ``max_distinct_values`` gets none of its own: the device repeats its last permanent answer. All
    the same statements run and all the same digits are drawn in either case (invariant P9).

    Args:
        connection: inside that transaction.
        metric: a memoised one.
        index: the true answer.
    """
    chain = cast(Memoized, metric.mechanism)
    secret = _secret(connection)
    own = permanent_answer(chain, index, permanent_digits(secret, metric, index))
    tag = hmac.digest(_subkey(secret, _TAG), _name(metric, index), _BLOCK)[:_TAG_BYTES]
    key = _key(metric)
    connection.execute(
        "INSERT OR IGNORE INTO memo_values SELECT ?, ?, ?, ? WHERE"
        " (SELECT count(*) FROM memo_values WHERE metric = ? AND version = ? AND params = ?) < ?",
        (*key, tag, *key, metric.max_distinct_values),
    )
    (known,) = connection.execute(
        "SELECT count(*) FROM memo_values WHERE metric = ? AND version = ? AND params = ? AND tag = ?",
        (*key, tag),
    ).fetchone()
    answer = (_last(connection, metric), own)[known]
    connection.execute(
        "INSERT OR REPLACE INTO memos VALUES (?, ?, ?, ?)",
        (*key, answer.to_bytes(_answer_bytes(chain), "little")),
    )
    return second_round(chain, answer)


def permanent_digits(secret: bytes, metric: Metric, index: int) -> Digits:
    """The digits of the permanent answer to one value: HMAC in counter mode under a key of that value alone."""
    key = hmac.digest(_subkey(secret, _ANSWER), _name(metric, index), _BLOCK)
    counter = 0

    def digits(count: int) -> bytes:
        nonlocal counter
        blocks = -(-count // _BLOCK_BYTES)
        first, counter = counter, counter + blocks
        drawn = [hmac.digest(key, block.to_bytes(8, "little"), _BLOCK) for block in range(first, counter)]
        return b"".join(drawn)[:count]

    return digits


def distinct_values(connection: sqlite3.Connection) -> dict[tuple[str, int], int]:
    """How many distinct values have a permanent answer, by metric and version."""
    rows = connection.execute("SELECT metric, version, count(*) FROM memo_values GROUP BY metric, version")
    return {(metric, version): count for metric, version, count in rows}


def erase(connection: sqlite3.Connection) -> None:
    """Forget the secret, the tags and the last answers; what comes next starts anew and is charged anew."""
    connection.execute("DELETE FROM memo_values")
    connection.execute("DELETE FROM memos")
    write_note(connection, _NOTE, None)


def _key(metric: Metric) -> tuple[str, int, str]:
    """A change of meaning, even without a new version, must not reuse answers to another question.

    By the whole hash: two questions that share the 8 digits of ``params_hash`` are found within a second, and a
    server could charge for the lesser one and ask the other (invariant P6).
    """
    return metric.name, metric.version, metric.meaning_hash


def _name(metric: Metric, index: int) -> bytes:
    """What stands for a value: of one length for all values of a metric."""
    return json.dumps(_key(metric)).encode("ascii") + index.to_bytes(4, "little")


def _answer_bytes(chain: Memoized) -> int:
    return (chain.d + 7) // 8


def _last(connection: sqlite3.Connection, metric: Metric) -> int:
    row = connection.execute(
        "SELECT answer FROM memos WHERE metric = ? AND version = ? AND params = ?", _key(metric)
    ).fetchone()
    return int.from_bytes(row[0] if row else b"", "little")


def _secret(connection: sqlite3.Connection) -> bytes:
    """The device's secret for memoised metrics, drawn when it is first needed."""
    note = read_note(connection, _NOTE)
    if note is None:
        note = entropy.random_bytes(_SECRET_BYTES).hex()
        write_note(connection, _NOTE, note)
    return bytes.fromhex(note)


def _subkey(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, purpose, _BLOCK)
