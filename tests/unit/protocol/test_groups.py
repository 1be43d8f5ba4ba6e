"""Registry key `one_of`: its rules, what it costs, and that it changes no report's meaning."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from dither_protocol import RegistryError, registry_from_document
from dither_protocol.registry import decode_definition, encode_definition
from dither_protocol.registry.diff import diff_registries
from dither_protocol.registry.difference import Verdict
from dither_protocol.registry.spending import DAY, LIFE, WEEK, YEAR, spending
from dither_protocol.registry.spending_bounds import bounds
from support.groups import EPSILONS, MEMBERS, group_document

MONDAY = date(2026, 11, 30)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def _refused(document: dict[str, Any]) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        registry_from_document(document)
    return caught.value


def _without_group(name: str) -> dict[str, Any]:
    document = group_document()
    del document["metrics"][name]["one_of"]
    return document


def test_the_groups_of_a_registry_are_in_the_order_of_the_file() -> None:
    """A metric without the key is in none."""
    registry = registry_from_document(group_document())
    assert {name: [each.name for each in group] for name, group in registry.groups.items()} == {
        "editor": list(MEMBERS)
    }
    assert registry.metric("dark_mode").one_of is None


@pytest.mark.parametrize("wrong", ["", "Editor", "1st", "a b", "a-b", "a" * 65, 7, True, ["editor"], None])
def test_a_group_has_a_name_as_metrics_have(wrong: Any) -> None:
    """Anything else is refused by key."""
    error = _refused(group_document(one_of=wrong))
    assert error.path == "metrics.editor_font.one_of"
    assert "[a-z][a-z0-9_]{0,63}" in str(error)


def test_the_members_of_a_group_have_one_period() -> None:
    """Else there would be no window for which one of them could be drawn; the error names both."""
    document = group_document()
    document["metrics"]["tab_width"]["period"] = "week"
    error = _refused(document)
    assert error.path == "metrics.tab_width.one_of"
    assert "'tab_width' asks by week and 'editor_font' by day" in str(error)
    document["metrics"]["tab_width"]["one_of"] = "other"
    assert set(registry_from_document(document).groups) == {"editor", "other"}


def test_a_memoised_metric_is_in_no_group() -> None:
    """It is charged for life at its first report, so a lot would save nothing."""
    lasting = {
        "mechanism": "grr", "collection": "memoized", "epsilon": 0.5, "epsilon_permanent": 1.0,
        "max_distinct_values": 2,
    }  # fmt: skip
    error = _refused(group_document(**lasting))
    assert error.path == "metrics.editor_font.one_of"
    assert "fresh" in str(error)


@pytest.mark.parametrize("period", ["hour", "day", "week", "month", "once"])
def test_every_period_may_have_groups(period: str) -> None:
    """Also metrics that are asked once: then a device answers one of them for good."""
    assert len(registry_from_document(group_document(period)).groups["editor"]) == 3


def test_the_key_is_no_part_of_the_meaning_and_survives_the_store() -> None:
    """Reports with and without it mean the same; the definition that workers read has it."""
    registry, apart = (
        registry_from_document(group_document()),
        registry_from_document(_without_group("tab_width")),
    )
    assert registry.metric("tab_width").params_hash == apart.metric("tab_width").params_hash
    assert decode_definition(encode_definition(registry, "tab_width")) == registry.metric("tab_width")
    assert decode_definition(encode_definition(registry, "tab_width")).one_of == "editor"


def test_a_group_costs_its_largest_epsilon_instead_of_the_sum() -> None:
    """By span: day 2 + 1, week 7 (2 + 1), year 366 (2 + 1); apart it would be 3.5 + 1 a day."""
    registry = registry_from_document(group_document())
    found = spending(registry, MONDAY)
    assert registry.worst_case_per_day() == max(EPSILONS.values()) + 1.0
    assert [found.epsilon(span) for span in (DAY, WEEK, YEAR, LIFE)] == [3.0, 21.0, 1098.0, None]
    assert found.reports == {DAY: 2, WEEK: 14, YEAR: 732, LIFE: None}
    assert [each.name for each in bounds(found.charges[WEEK], 1e-6)] == ["basic"]
    font, _, _, dark = found.metrics
    assert (font.charged, font.epsilon(DAY), [each.name for each in font.group]) == (2.0, 0.5, list(MEMBERS))
    assert (dark.charged, [each.name for each in dark.group]) == (1.0, ["dark_mode"])


def test_the_most_combinations_of_any_member_count_with_the_largest_epsilon() -> None:
    """A device answers the drawn member for each combination, and each of those costs the largest epsilon."""
    document = group_document()
    document["metrics"]["editor_font"]["dimensions"] = {"os": ["a", "b", "c"]}
    assert registry_from_document(document).worst_case_per_day() == 3 * 2.0 + 1.0


def test_a_member_that_has_expired_counts_no_more() -> None:
    """The device draws among those that are left, and is charged the largest of them."""
    document = group_document()
    document["metrics"]["tab_width"]["expires"] = "2026-11-29"
    found = spending(registry_from_document(document), MONDAY)
    assert found.epsilon(DAY) == 1.0 + 1.0
    assert [charge.alone for charge in found.charges[DAY]] == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            None,
            "editor",
            "set to 'editor': of the metrics of a group a device answers one per window, so n changes",
        ),
        ("editor", None, "removed; it was 'editor': every device answers again"),
        ("editor", "other", "changed from 'editor' to 'other': of the metrics of a group"),
    ],
)
def test_a_change_of_the_group_is_a_notice(old: str | None, new: str | None, said: str) -> None:
    """No report changes its meaning, but n does: no new version is asked for."""
    before, after = _without_group("tab_width"), _without_group("tab_width")
    for document, group in ((before, old), (after, new)):
        if group is not None:
            document["metrics"]["tab_width"]["one_of"] = group
    (found,) = diff_registries(registry_from_document(before), registry_from_document(after), NOON)
    assert (found.path, found.verdict) == ("metrics.tab_width.one_of", Verdict.NOTICE)
    assert found.reason.startswith(said)
    assert "no report changes its meaning" in found.reason


def test_a_metric_that_joins_a_group_takes_reports_from_the_others() -> None:
    """A notice with the reason; one that is added by itself, or with its whole group, is compatible."""
    document = group_document()
    with_all = registry_from_document(document)
    del document["metrics"]["tab_width"]
    (joined,) = diff_registries(registry_from_document(document), with_all, NOON)
    assert (joined.path, joined.verdict) == ("metrics.tab_width", Verdict.NOTICE)
    assert "its other metrics get fewer" in joined.reason
    for name in ("editor_font", "line_length"):
        del document["metrics"][name]
    added = diff_registries(registry_from_document(document), with_all, NOON)
    assert {each.verdict for each in added} == {Verdict.COMPATIBLE}
