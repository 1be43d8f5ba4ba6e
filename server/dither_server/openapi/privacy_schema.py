"""The schema of ``GET /v1/privacy``."""

from typing import Final

from dither_protocol.registry.spending import SPANS
from dither_server.openapi.shapes import (
    COUNT,
    DAY,
    FLAG,
    MECHANISM,
    NUMBER,
    PAIR,
    PERIOD,
    SHARE,
    TEXT,
    listed,
    nullable,
    said,
    shaped,
)

_BUDGET: Final = shaped({"spent": nullable(NUMBER), "limit": nullable(NUMBER), "over": FLAG})

_BOUND: Final = shaped(
    {
        "name": said(
            TEXT, "Of the rule by which privacy losses are put together; `basic` is their plain sum."
        ),
        "epsilon": NUMBER,
        "delta": said(SHARE, "By how much the bound may fail; 0 for never."),
        "assumption": said(TEXT, "Under which the bound holds, as a sentence."),
    }
)

_SPENT: Final = {
    "reports": said(nullable(COUNT), "Most reports of one device; null for no end."),
    "epsilon": said(nullable(NUMBER), "Plain sum of their epsilons; null for no end."),
    "bounds": said(listed(_BOUND), "The plain sum, and better bounds where there are some."),
}

_TOGETHER: Final = shaped(
    {
        **_SPENT,
        "limit": said(nullable(NUMBER), "On the plain sum, of the registry; null where it sets none."),
        "over": said(FLAG, "Whether the plain sum is above its limit: a device stops answering there."),
        "at_most": said(
            nullable(NUMBER), "The plain sum, or where all limits let a device stop; null for no end."
        ),
    }
)

_ONE_OF: Final = shaped(
    {
        "group": said(TEXT, "Of which a device answers one metric per window, drawn by lot."),
        "members": listed(TEXT),
        "epsilon_charged": said(
            NUMBER, "What each report of the group is charged with: its largest epsilon."
        ),
    }
)

PRIVACY: Final = shaped(
    {
        "project": TEXT,
        "first_day": said(DAY, "On which the device begins: today. A year is 366 days from it on."),
        "composition": said(TEXT, "By which rule epsilons are added up: `basic`, their plain sum."),
        "per_day": said(_BUDGET, "Worst case of one device on one UTC day."),
        "lifetime": said(_BUDGET, "From today until the last metric expires; null where one never does."),
        "days_to_lifetime_limit": nullable(NUMBER),
        "lifetime_filter": said(
            nullable(shaped({"epsilon": NUMBER, "delta": SHARE})),
            "Where the registry has a delta: before all its reports together could tell more than this epsilon, but "
            "for this probability, a device stops. It is no limit on the plain sum; null without a delta.",
        ),
        "spans": said(
            shaped(dict.fromkeys(SPANS, _TOGETHER)),
            "Worst case of one device over all metrics: on one UTC day, in one week from Monday to Sunday, in the year "
            "from `first_day` on, and until the last metric expires. Every window counts that is open in the span.",
        ),
        "metrics": listed(
            shaped(
                {
                    "metric": TEXT, "version": COUNT, "mechanism": MECHANISM, "epsilon": NUMBER,
                    "collection": TEXT, "calibration": FLAG, "period": PERIOD, "expires": nullable(DAY),
                    "combinations": COUNT,
                    "reports_per_day": COUNT, "spans": shaped(dict.fromkeys(SPANS, shaped(_SPENT))),
                    "epsilon_per_day": NUMBER, "windows_left": nullable(COUNT),
                    "epsilon_lifetime": nullable(NUMBER), "one_of": nullable(_ONE_OF), "use_case": nullable(TEXT),
                    "guidance": nullable(PAIR), "breach": nullable(TEXT),
                }
            )
        ),
        "breaches": listed(shaped({"metric": TEXT, "reason": TEXT})),
    }
)  # fmt: skip
