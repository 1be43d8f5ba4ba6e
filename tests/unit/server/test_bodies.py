"""Bodies: gzip within its limit, JSON without surprises."""

import gzip
import json
import threading

import pytest

from dither_protocol.errors import BatchError, BatchProblem
from dither_server.bodies import BodyTooLarge, inflate, inflated_size, read_json, turn


@pytest.mark.parametrize("body", [b"", b"{}", bytes(1_000)])
def test_one_gzip_member_is_inflated(body):
    """What was compressed comes back, up to and including the limit."""
    assert inflate(gzip.compress(body), 1_000) == body


def test_more_than_the_limit_is_refused():
    """One byte over the limit is too many."""
    with pytest.raises(BodyTooLarge, match="1000"):
        inflate(gzip.compress(bytes(1_001)), 1_000)


def test_a_bomb_is_never_inflated_whole(monkeypatch):
    """A gibibyte of zeros is given up at the limit."""
    one = gzip.compress(bytes(1 << 26))
    with pytest.raises(BodyTooLarge):
        inflate(one, 1 << 20)


@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 1 << 20])
def test_a_member_says_how_large_its_content_is(size):
    """It is told before anything is inflated, and what says the truth is inflated whatever its size."""
    raw = gzip.compress(bytes(size))
    assert inflated_size(raw) == size
    assert inflate(raw, 1 << 20) == bytes(size)


@pytest.mark.parametrize("said", [0, 262_144, 1 << 19])
def test_a_member_that_says_less_than_it_holds_is_refused(said):
    """What passed its turn as a small body is never held as a large one."""
    raw = gzip.compress(bytes(1 << 20))[:-4] + said.to_bytes(4, "little")
    with pytest.raises(BatchError, match="larger than its gzip stream says"):
        inflate(raw, 8 << 20)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "ends inside"),
        (b"{}", "is not gzip"),
        (gzip.compress(b"{}")[:-1], "ends inside"),
        (gzip.compress(b"{}")[:-8] + bytes(8), "is not gzip"),
        (gzip.compress(b"{}") + b"x", "goes on"),
        (gzip.compress(b"{}") * 2, "goes on"),
    ],
)
def test_what_is_not_one_whole_member_is_refused(raw, words):
    """Cut, damaged and lengthened gzip are malformed bodies."""
    with pytest.raises(BatchError, match=words) as caught:
        inflate(raw, 1_000)
    assert caught.value.problem is BatchProblem.MALFORMED_BODY


@pytest.mark.parametrize("document", [{}, [1, 2.5, None, True, "ä"], {"n": 10**30}])
def test_json_is_read_as_plain_objects(document):
    """Ordinary JSON is read."""
    assert read_json(json.dumps(document).encode()) == document


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{}x", b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"9" * 5_000, b"\xff", b'"\xc3"',
        b'"\\ud800"', b"{'a': 1}", b"[1,]", b"\xef\xbb\xbf{}", b"\x00", b'{"a": 01}',
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(body):
    """NaN, numbers without end, foreign bytes and loose syntax are malformed bodies."""
    with pytest.raises(BatchError, match="is not valid JSON") as caught:
        read_json(body)
    assert caught.value.problem is BatchProblem.MALFORMED_BODY


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 5_000 + b"]" * 5_000])
def test_deep_nesting_is_refused(body):
    """Nesting that would exhaust the stack is an error of the batch, not of the server."""
    with pytest.raises(BatchError, match="nested too deeply"):
        read_json(body)


def test_large_bodies_take_turns_and_small_ones_do_not_wait():
    """While one large body is read another waits, and small ones pass."""
    entered = threading.Event()

    def second():
        with turn(2 << 20):
            entered.set()

    other = threading.Thread(target=second)
    with turn(2 << 20):
        other.start()
        with turn(100):
            assert not entered.wait(0.05)
    other.join(60)
    assert entered.is_set()
