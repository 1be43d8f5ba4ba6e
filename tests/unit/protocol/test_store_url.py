"""URLs of stores: what each form names, what is refused, and that no password is ever shown."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.store_url import STORE_SCHEMES, StoreUrlError, mask_store_url, parse_store_url


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://user:secret@host:6380/3?socket_timeout=2",
        "rediss://[::1]:6379/0",
        "unix:///run/valkey.sock?db=1",
        "unix://user:secret@/run/valkey.sock",
    ],
)
def test_a_server_is_named_by_its_own_url(url: str) -> None:
    """One server is left to the client's library, to the letter."""
    found = parse_store_url(url)
    assert (found.clustered, found.urls) == (False, (url,))


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("cluster://host", ["redis://host"]),
        ("cluster://a:7000,b:7001/", ["redis://a:7000/", "redis://b:7001/"]),
        ("cluster://:p%40w@a,[::1]:7001", ["redis://:p%40w@a", "redis://:p%40w@[::1]:7001"]),
        (
            "clusters://user:secret@a:1,b:2,c/0?ssl_ca_certs=%2Fca.pem&db=0",
            [f"rediss://user:secret@{host}/0?ssl_ca_certs=%2Fca.pem&db=0" for host in ("a:1", "b:2", "c")],
        ),
    ],
)
def test_a_cluster_is_named_by_the_urls_of_its_nodes(url: str, nodes: list[str]) -> None:
    """Every node to begin at has the account and the options of the whole."""
    found = parse_store_url(url)
    assert (found.clustered, found.urls) == (True, tuple(nodes))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "must begin with redis://, rediss://, unix://, cluster://, clusters://"),
        ("localhost:6379", "must begin with"),
        ("http://localhost", "must begin with"),
        ("redis:/localhost", "must begin with"),
        ("redis://", "names no server"),
        ("redis://:secret@", "names no server"),
        ("unix://", "names no server"),
        ("cluster://", "names no server"),
        ("cluster://a,,b", "names no server"),
        ("cluster://a,", "names no server"),
        ("redis://[::1", "is not a URL"),
        ("redis://host:port", "is not a URL"),
        ("redis://host:0", "is not a URL"),
        ("redis://:sec#ret@host", "is not a URL"),
        ("cluster://a:7000,b:65536", "is not a URL"),
        ("cluster://:sec#ret@host", "is not a URL"),
        ("redis://u:12/34@host", "names a database that is no number"),
        ("redis://u:12?34@host", "is not a URL"),
        ("cluster://u:12?34@host", "is not a URL"),
        ("cluster://a/1", "names a database"),
        ("cluster://a?db=2", "names a database"),
        ("cluster://u:1@a,u:2@b", "one account holds for all nodes"),
    ],
)
def test_what_names_no_store_is_refused(url: str, words: str) -> None:
    """The reason is said; the text is not repeated."""
    with pytest.raises(StoreUrlError, match=words) as caught:
        parse_store_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:1/0", "redis://user:***@host:1/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://:se@cret@host", "redis://:***@host"),
        ("redis://user@host", "redis://user@host"),
        ("unix:///a/b?password=secret", "unix:///a/b?***"),
        ("unix://:secret@/a/b", "unix://:***@/a/b"),
        ("cluster://:secret@a:1,b:2", "cluster://:***@a:1,b:2"),
        ("clusters://user:secret@a:1,b:2/0?password=secret", "clusters://user:***@a:1,b:2/0?***"),
        ("cluster://u:secret@a,u:secret@b", "***"),
        ("redis://:secret#@host", "***"),
        ("secret", "***"),
    ],
)
def test_a_password_is_masked(url: str, shown: str) -> None:
    """Account and options are hidden, the rest helps; what is no URL is hidden whole."""
    assert mask_store_url(url) == shown


@given(st.sampled_from(STORE_SCHEMES), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_no_password_is_shown_in_any_form(scheme: str, password: str) -> None:
    """Percent-encoded it is hidden; as it stands it is hidden too, or the text is refused and hidden whole."""
    hidden = f"\u2039{password}\u203a"  # cannot be a part of the rest by chance
    place = "/run/store.sock" if scheme == "unix" else "host:6379"
    for written in (quote(hidden, safe=""), hidden):
        shown = mask_store_url(f"{scheme}://user:{written}@{place}?password={quote(hidden)}")
        assert shown in (f"{scheme}://user:***@{place}?***", "***")


def test_the_repr_hides_the_urls() -> None:
    """What was parsed can be logged."""
    assert "secret" not in repr(parse_store_url("cluster://:secret@a,b"))
