"""The report of ``wrk``, as version 4 writes it."""

import pytest

from dither_harness.wrk import parse_wrk, seconds_of

REPORT = """Running 4s test @ http://127.0.0.1:43507
  1 threads and 200 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   811.89ms  318.26ms   1.72s    78.37%
    Req/Sec   240.84    156.31   550.00     65.62%
  Latency Distribution
     50%  740.15ms
     75%  885.04ms
     90%    1.48s 
     99%    1.67s 
  809 requests in 4.10s, 205.41KB read
Requests/sec:    197.17
Transfer/sec:     50.06KB
"""  # noqa: W291  wrk pads its times


def test_rate_and_latencies_are_read() -> None:
    """In seconds, whatever the unit; nothing but accepted answers."""
    found = parse_wrk(REPORT, 200)
    assert found.connections == 200
    assert found.requests_per_s == 197.17
    assert found.p50_s == pytest.approx(0.74015)
    assert found.p99_s == pytest.approx(1.67)
    assert found.not_accepted == 0


def test_what_was_not_accepted_is_counted() -> None:
    """Other answers and requests without one, together: then the latencies are not those of accepted requests alone."""
    broken = "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 50\nRequests/sec:"
    assert parse_wrk(REPORT.replace("Requests/sec:", broken), 200).not_accepted == 60


def test_another_text_is_no_report() -> None:
    """Rather an error than a capacity of nothing."""
    for text in ("", "unable to connect to 127.0.0.1:1 Connection refused\n", REPORT.replace("99%", "98%")):
        with pytest.raises(ValueError, match="no report"):
            parse_wrk(text, 32)


@pytest.mark.parametrize(
    ("text", "seconds"), [("12.50us", 12.5e-6), ("1.00ms", 1e-3), ("2.5s", 2.5), ("1.5m", 90.0)]
)
def test_units_of_time(text: str, seconds: float) -> None:
    """All that it writes; without one, or with another, it is no time."""
    assert seconds_of(text) == pytest.approx(seconds)
    for wrong in (text[:-1] + "h", "12", ""):
        with pytest.raises(ValueError, match="no time"):
            seconds_of(wrong)
