"""What the pages say: alarms, privacy, ledger, numbers, addresses, small pictures. Pure parts of the dashboard."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from dither_protocol.errors import Rejection
from dither_protocol.registry import Metric, Registry, registry_from_document
from dither_protocol.registry.spending import LIFE
from dither_protocol.storage import UNKNOWN
from dither_server import formats
from dither_server.alarms import Level, metric_alarms, service_alarms
from dither_server.conservation import Conservation, Ledger, Terms
from dither_server.counting_state import CountingState, PartitionState, WorkerState
from dither_server.csv_export import COLUMNS, estimates_csv
from dither_server.dashboard.charts import facts_line, history_chart, values_chart
from dither_server.dashboard.health_page import CHECKS, REASONS, HealthView
from dither_server.dashboard.history import affordable, windows_until
from dither_server.dashboard.queries import MetricQuery
from dither_server.dashboard.sparklines import HEIGHT, Line, bars, lines
from dither_server.documents import Estimate, read_estimates
from dither_server.privacy import privacy_view
from dither_server.problems import Problem

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)


def _registry(privacy: dict[str, float] | None = None, **metrics: dict[str, Any]) -> Registry:
    tables = {
        name: {"version": 1, "type": "boolean", "description": "d", "epsilon": 1.0, "mechanism": "rr"}
        | changes
        for name, changes in metrics.items()
    }
    return registry_from_document({"schema": 1, "project": "p", "privacy": privacy or {}, "metrics": tables})


def _metric(**changes: Any) -> Metric:
    return _registry(m=changes).metrics["m"]


def _document(label: str = "2026-11-29", n: int = 500, **changes: Any) -> dict[str, Any]:
    window = _metric().parse_window(label)
    values = [
        {"value": name, "estimate": share, "std_error": 0.02, "interval": [share - 0.04, share + 0.04],
         "interval_method": "wilson", "norm_sub": share, "present": share > 0.1}
        for name, share in (("false", 0.7), ("true", 0.3))
    ]  # fmt: skip
    return {
        "metric": "m", "version": 1, "status": "open", "n": n, "target": "population", "level": 0.95,
        "window": {"label": label, "start": window.start.isoformat(), "end": window.end.isoformat()},
        "mechanism": "rr", "epsilon": 1.0, "revision": 3, "watermark": "2026-11-29T12:00:00Z", "values": values,
    } | changes  # fmt: skip


def _estimate(label: str = "2026-11-29", n: int = 500, **changes: Any) -> Estimate:
    (found,), damaged = read_estimates([msgspec.json.encode(_document(label, n, **changes))])
    assert damaged == 0
    return found


def _kinds(metric: Metric, latest: Estimate | None = None, now: datetime = NOW, **terms: Any) -> list[str]:
    return [alarm.kind for alarm in metric_alarms(metric, latest, Terms(**terms), now)]


# -- alarms ----------------------------------------------------------------------------------------------------


def test_a_metric_without_trouble_has_no_alarm() -> None:
    """Reports of today, few refused, far from its last day: nothing is said."""
    terms = {"received": 1000, "duplicate": 10, "rejected": {"payload-invalid": 49}}
    assert _kinds(_metric(expires="2027-06-30"), _estimate(), **terms) == []
    assert _kinds(_metric()) == []


@pytest.mark.parametrize(
    ("label", "kinds"), [("2026-11-29", []), ("2026-11-28", []), ("2026-11-27", ["silent"])]
)
def test_a_metric_is_silent_after_a_whole_window_without_reports(label: str, kinds: list[str]) -> None:
    """The window that has just begun may be empty, the whole one before it may not."""
    assert _kinds(_metric(), _estimate(label)) == kinds
    assert _kinds(_metric(expires="2026-11-28"), _estimate(label)) == ["expired"]
    assert _kinds(_metric(period="once", expires="2029-01-01"), _estimate(label)) == []


@pytest.mark.parametrize(
    ("expires", "kinds"),
    [
        ("2026-12-30", []),
        ("2026-12-29", ["expires-soon"]),
        ("2026-11-29", ["expires-soon"]),
        ("2026-11-28", ["expired"]),
    ],
)
def test_an_expiry_is_announced_thirty_days_before(expires: str, kinds: list[str]) -> None:
    """From thirty days before the last day until it, and after it."""
    assert _kinds(_metric(expires=expires)) == kinds


@pytest.mark.parametrize(("refused", "kinds"), [(49, []), (50, ["rejected"])])
def test_refusals_for_one_reason_are_an_alarm_from_five_per_cent(refused: int, kinds: list[str]) -> None:
    """The share is of reports that came for the first time, and of each reason by itself."""
    rejected = {"payload-invalid": refused, "window-invalid": 49}
    assert _kinds(_metric(), received=1200, duplicate=200, rejected=rejected) == kinds


def test_imbalance_and_suppression_are_said() -> None:
    """One missing report is a problem; too few reports are a note."""
    found = metric_alarms(
        _metric(), _estimate(n=40, status="suppressed", values=[], min_reports=100), Terms(imbalance=1), NOW
    )
    assert [(alarm.kind, alarm.level) for alarm in found] == [
        ("imbalance", Level.BAD),
        ("suppressed", Level.NOTE),
    ]
    assert "40 reports" in found[1].text
    assert "100" in found[1].text


@pytest.mark.parametrize(("flagged", "kinds"), [(False, []), (True, ["support-total"])])
def test_a_total_that_honest_reports_do_not_give_is_an_alarm(flagged: bool, kinds: list[str]) -> None:
    """Somebody makes up reports."""
    total = {"total": 900, "expected": 500.0, "std_dev": 10.0, "flagged": flagged}
    found = metric_alarms(_metric(), _estimate(support_total=total), Terms(), NOW)
    assert [alarm.kind for alarm in found] == kinds


def _ledger(**accounts: Terms) -> Ledger:
    found = Conservation(accounts={(name, "w"): terms for name, terms in accounts.items()})
    return Ledger(found, found.by_metric())


def _counting(silent_s: float = 1.0, waiting_s: float | None = None) -> CountingState:
    waiting = None if waiting_s is None else timedelta(seconds=waiting_s)
    worker = WorkerState("w", timedelta(seconds=silent_s), (0,), publishing=True)
    return CountingState([worker], [PartitionState(0, waiting, 0, 0)])


@pytest.mark.parametrize(
    ("counting", "kinds"),
    [
        (_counting(), []),
        (_counting(waiting_s=60), []),
        (_counting(waiting_s=61), ["estimator-late"]),
        (_counting(silent_s=6), ["no-worker"]),
        (CountingState([], []), ["no-worker"]),
    ],
)
def test_an_estimator_that_does_not_keep_up_is_an_alarm(counting: CountingState, kinds: list[str]) -> None:
    """No living worker, or a batch that has waited for more than a minute."""
    assert [alarm.kind for alarm in service_alarms(_ledger(), counting, [], ["m"])] == kinds


def test_an_imbalance_of_a_metric_that_is_gone_is_an_alarm_of_the_service() -> None:
    """The registry has it no longer, so it has no page; one that has a page has its alarm there."""
    ledger = _ledger(m=Terms(imbalance=1), gone=Terms(imbalance=3), well=Terms())
    (alarm,) = service_alarms(ledger, _counting(), [], ["m"])
    assert (alarm.kind, alarm.level) == ("imbalance", Level.BAD)
    assert alarm.text.startswith("gone, no longer in the registry: 3 reports missing or too many")


def test_alarms_of_the_service() -> None:
    """Failing checks, unreadable keys, and many reports about things that nobody knows."""
    ledger = _ledger(m=Terms(received=90), **{UNKNOWN: Terms(received=10, rejected={"unknown-metric": 10})})
    ledger.found.unreadable.append("dither:x")
    kinds = [alarm.kind for alarm in service_alarms(ledger, _counting(), ["backlog"], ["m"])]
    assert kinds == ["not-ready", "unreadable", "rejected"]


# -- privacy ---------------------------------------------------------------------------------------------------


def test_the_worst_case_is_the_sum_that_the_registry_check_gives() -> None:
    """Per device and day: the same number as `Registry.worst_case_per_day`, and what its parts add up to."""
    registry = _registry(
        {"max_epsilon_per_day": 100.0, "max_epsilon_lifetime": 200.0},
        hourly={"period": "hour", "epsilon": 0.5, "expires": "2026-11-30"},
        daily={"dimensions": {"os": ["a", "b", "c"]}, "expires": "2026-12-01"},
        weekly={"period": "week", "expires": "2026-12-31"},
        monthly={"period": "month", "expires": "2027-01-31"},
        once={"period": "once", "expires": "2026-12-31"},
    )
    view = privacy_view(registry, date(2026, 11, 29))
    assert view.day.spent == registry.worst_case_per_day() == 24 * 0.5 + 3 + 1 + 1 + 1
    assert view.day.spent == math.fsum(each.per_day for each in view.metrics)
    assert [each.spending.windows[LIFE] for each in view.metrics] == [48, 3, 6, 3, 1]
    assert view.life.spent == 48 * 0.5 + 3 * 3 + 6 + 3 + 1
    assert (view.day.over, view.life.over) == (False, False)
    assert view.day.share == pytest.approx(0.18)


def test_the_windows_that_are_left_are_those_that_can_still_begin() -> None:
    """The count for each period equals the windows that the protocol itself names from today to the last day."""
    today = date(2026, 11, 29)
    for period in ("hour", "day", "week", "month"):
        metric = _metric(period=period, expires="2027-03-02")
        end = datetime(2027, 3, 2, 23, 59, tzinfo=UTC)
        at, labels = datetime(2026, 11, 29, tzinfo=UTC), set()
        while at <= end:
            labels.add(metric.window_at(at).label)
            at += timedelta(hours=1)
        (each,) = privacy_view(_registry(m={"period": period, "expires": "2027-03-02"}), today).metrics
        assert each.spending.windows[LIFE] == len(labels), period


def test_limits_that_are_exceeded_or_missing() -> None:
    """Above a limit is said; so is a metric that never ends, and a registry without limits."""
    day = {"period": "day", "epsilon": 3.0}
    limits = {"max_epsilon_per_day": 2.9, "max_epsilon_lifetime": 30.0}
    view = privacy_view(_registry(limits, m=day), date(2026, 11, 29))
    assert (view.day.over, view.life.over, view.life.spent) == (True, True, None)
    assert view.days_to_limit == 10
    free = privacy_view(_registry({}, m=day), date(2026, 11, 29))
    assert (free.day.over, free.life.over, free.days_to_limit) == (False, False, None)
    gone = privacy_view(_registry(limits, m=day | {"expires": "2026-11-28"}), date(2026, 11, 29))
    assert (gone.life.spent, gone.days_to_limit) == (0.0, None)


@pytest.mark.parametrize(
    ("epsilon", "use_case", "word"),
    [(1.0, "census", ""), (1.1, "census", "above"), (0.5, "location", "below"), (9.0, None, "")],
)
def test_guidance_and_its_breaches(epsilon: float, use_case: str | None, word: str) -> None:
    """Within the usual range nothing is said, outside it says on which side; without a use case there is none."""
    changes: dict[str, Any] = {"epsilon": epsilon} | ({} if use_case is None else {"use_case": use_case})
    (each,) = privacy_view(_registry(m=changes), date(2026, 11, 29)).metrics
    assert each.breach.startswith(word)
    assert bool(each.breach) == bool(word)
    assert each.odds == pytest.approx(math.exp(epsilon))


# -- numbers, addresses ----------------------------------------------------------------------------------------


def test_numbers_for_people() -> None:
    """Thousands are parted, minus is a minus, a zero has no sign, and what is tiny is not called zero."""
    thin = formats.SPACE
    assert formats.whole(1234567) == f"1{thin}234{thin}567"
    assert formats.percent(-0.0123) == f"{formats.MINUS}1.2{thin}%"
    assert formats.percent(-0.0001) == f"0.0{thin}%"
    assert formats.portion(0.0001) == f"<{thin}0.1{thin}%"
    assert [formats.level(share) for share in (0.95, 0.999)] == [f"95{thin}%", f"99.9{thin}%"]
    assert [formats.size(count) for count in (999, 1_000, 5 << 20, 64 << 30)] == [
        f"999{thin}B", f"1.0{thin}KiB", f"5.0{thin}MiB", f"64{thin}GiB",
    ]  # fmt: skip
    assert formats.interval((-0.01, 0.325)) == f"{formats.MINUS}1.0 to 32.5{thin}%"
    assert (formats.number(0.5), formats.number(2.0), formats.number(107568.0)) == (
        "0.5",
        "2",
        f"107{thin}568",
    )
    assert formats.duration(timedelta(seconds=-3)) == f"0{thin}s"
    assert formats.duration(timedelta(days=1, hours=2, minutes=3)) == f"1{thin}d 2{thin}h"
    assert formats.moment(datetime(2026, 11, 29, 13, 5, tzinfo=UTC)) == "2026-11-29 13:05 UTC"
    assert [formats.whole(None), formats.percent(None), formats.number(None), formats.moment(None)] == [
        formats.NOTHING
    ] * 4


@pytest.mark.parametrize(
    ("half_width", "decimals"), [(0.2, 1), (0.01, 1), (0.004, 2), (0.0004, 3), (1e-9, 4), (0.0, 1)]
)
def test_decimals_follow_the_interval(half_width: float, decimals: int) -> None:
    """As many as tell the ends of the interval apart, at least one, at most four."""
    assert formats.decimals_for(half_width) == decimals


@pytest.mark.parametrize(
    "query",
    [MetricQuery(), MetricQuery(window="2026-11-29", dimensions="os=a%2Cb", values="norm_sub", order="listed"),
     MetricQuery(over="28", window="2026-W48"), MetricQuery(level=0.999, simultaneous=True)],
)  # fmt: skip
def test_an_address_leads_to_its_own_choices(query: MetricQuery) -> None:
    """A link that choices make is read as the same choices; defaults are left out."""
    link = query.link("/metrics/m")
    assert MetricQuery.read(dict(parse_qsl(urlsplit(link).query))) == query
    assert MetricQuery().link("/metrics/m") == "/metrics/m"


def test_choices_that_there_are_not() -> None:
    """Each names its parameter."""
    for name, value in (
        ("values", "x"),
        ("order", "x"),
        ("over", "8"),
        ("window", "x"),
        ("dimensions", "x"),
        ("level", "0.5"),
        ("simultaneous", "yes"),
        ("x", "y"),
    ):
        with pytest.raises(Problem) as caught:
            MetricQuery.read({name: value})
        assert caught.value.field == name


# -- documents, charts -----------------------------------------------------------------------------------------


def test_documents_of_other_versions_are_read() -> None:
    """Unknown fields are passed over, missing ones are empty; what is no document is counted, not raised."""
    old = _document()
    for name in ("revision", "watermark"):
        del old[name]

    texts = [msgspec.json.encode(old | {"news": [1]}), b"{}", b"not json", b'{"n": "x"}']
    found, damaged = read_estimates(texts)
    assert (len(found), damaged) == (1, 3)
    assert (found[0].revision, found[0].watermark, found[0].about) == (None, None, "version 1")
    over = _estimate(
        windows={"first": "2026-11-23", "last": "2026-11-29"}, window=old["window"] | {"label": "a/b"}
    )
    assert over.key == "2026-11-29"


def test_a_chart_carries_what_its_numbers_must_not_be_shown_without() -> None:
    """n, mechanism, epsilon, target, level, method, window, version, revision, status and watermark, in one line."""
    line = facts_line(_estimate())
    for needed in ("n = 500", "rr at epsilon 1", "target population", "95", "wilson", "2026-11-29", "version 1",
                   "revision 3", "open", "watermark 2026-11-29 12:00 UTC"):  # fmt: skip
        assert needed in line, needed
    chart = values_chart(_estimate(), _estimate().values, "t", norm_sub=True)
    assert (chart["mode"], chart["estimate"], chart["lower"]) == (
        "norm_sub",
        [0.7, 0.3],
        [0.7 - 0.04, 0.3 - 0.04],
    )
    below = _document()["values"][0] | {"estimate": -0.01, "interval": [-0.05, 0.03]}
    drawn = _estimate(values=[below])
    chart = values_chart(drawn, drawn.values, "t", norm_sub=False)
    assert (chart["estimate"], chart["lower"], chart["upper"]) == (
        [-0.01],
        [-0.05],
        [0.03],
    )  # nothing is clipped
    along = history_chart([_estimate(), _estimate(values=[])], ["true"], "t", norm_sub=False)
    assert along["lines"][0]["estimate"] == [0.3, None]


def test_csv_of_what_is_suppressed_or_looks_like_a_formula() -> None:
    """A suppressed estimate keeps its row; a label that a spreadsheet would run gets an apostrophe."""
    hidden = _estimate(status="suppressed", values=[])
    evil = _document()["values"][0] | {"value": "=1+1"}
    header, first, second, *more = estimates_csv([hidden, _estimate(values=[evil])]).splitlines()
    assert header.split(",") == list(COLUMNS)
    assert first.count(",") == second.count(",") == header.count(",")
    assert ",'=1+1," in second
    assert not more


def test_small_pictures_escape_and_show_zero() -> None:
    """Names stand as text; a negative share lies below the line of zero; windows without reports are gaps."""
    picture = str(lines(["a", "b"], [Line("<b>", [-0.1, 0.2], [-0.2, 0.1], [0.0, 0.3])]))
    assert "<b>" not in picture
    assert "&lt;b&gt;" in picture
    (zero,) = re.findall(r'y1="([0-9.]+)"', picture)
    (points,) = re.findall(r'<polyline[^>]* points="([^"]*)"', picture)
    below, above = (float(point.split(",")[1]) for point in points.split())
    assert below > float(zero) > above  # y grows downwards
    columns = str(bars(["w1", "w2", "w3"], [None, 10, 20]))
    heights = [float(found) for found in re.findall(r' height="([0-9.]+)"', columns)]
    assert heights == [0.0, (HEIGHT - 2) / 2, HEIGHT - 2]


def test_windows_to_read() -> None:
    """So many windows up to the one asked for, oldest first; a metric that expired has them up to its last day."""
    assert [w.label for w in windows_until(_metric(), NOW, 3)] == ["2026-11-27", "2026-11-28", "2026-11-29"]
    gone = _metric(expires="2026-11-20")
    assert [w.label for w in windows_until(gone, NOW, 2)] == ["2026-11-19", "2026-11-20"]
    assert [w.label for w in windows_until(_metric(period="once", expires="2029-01-01"), NOW, 9)] == ["once"]
    assert affordable(_metric(), 30) == 30
    assert (
        affordable(
            _metric(type="categorical", mechanism="oue", categories=[f"c{i}" for i in range(3000)]), 30
        )
        == 4
    )


def test_every_reason_and_check_has_words() -> None:
    """Each reason of a refusal is explained; a check of a later server is shown as it is."""
    assert set(REASONS) == {reason.value for reason in Rejection}
    view = HealthView([], None, None, ["disk", "new-check"], "", [])
    assert [name for name, _, state in view.checks if state == "fails"] == ["disk", "new-check"]
    assert len(view.checks) == len(CHECKS) + 1
