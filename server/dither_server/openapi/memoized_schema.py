"""The schemas of what is said about memoised metrics."""

from typing import Final

from dither_server.openapi.shapes import COUNT, NUMBER, SHARE, TEXT, listed, nullable, said, shaped

_GUARANTEES: Final = listed(
    shaped(
        {
            "about": {"type": "string", "enum": ["report", "life", "reports"]},
            "epsilon": said(nullable(NUMBER), "Null where there is no useful bound."),
            "assumption": said(TEXT, "Under which it holds, as a sentence."),
        }
    )
)

_PERMANENT: Final = {
    "epsilon_permanent": said(NUMBER, "Of one permanent answer, however often it is reported."),
    "max_distinct_values": said(COUNT, "So many values have a permanent answer on each device."),
    "guarantees": _GUARANTEES,
}

MEMOIZED_METRIC: Final = said(nullable(shaped(_PERMANENT)), "Null for fresh collection.")

MEMOIZED_ESTIMATE: Final = said(
    shaped(
        {
            **_PERMANENT,
            "repeats": said(COUNT, "Most reports of one device among them; they share noise."),
            "design_effect": said(NUMBER, "So many reports are worth one independent one."),
            "std_error_floor": said(
                nullable(NUMBER), "Stays at a share of 0, however many more reports the devices send."
            ),
        }
    ),
    "Of memoised collection only.",
)

MEMOIZED_PLAN: Final = said(
    shaped(
        {
            "epsilon_permanent": NUMBER,
            "epsilon_second_round": nullable(NUMBER),
            "floors": listed(shaped({"devices": COUNT, "share": SHARE, "std_error": NUMBER})),
        }
    ),
    "Of memoised collection only: the standard errors that stay, however often so many devices report.",
)
