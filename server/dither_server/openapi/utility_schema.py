"""The schema of what an estimate is worth."""

from typing import Final

from dither_server.openapi.shapes import COUNT, NUMBER, SHARE, TEXT, listed, nullable, said, shaped

_ERRORS: Final = {
    "mean_absolute_error": said(NUMBER, "Mean over the values, in shares."),
    "relative_error": said(
        NUMBER, "Median of the errors over the shares, of the fewest values that hold nine tenths together."
    ),
    "noise_ratio": said(
        nullable(NUMBER),
        "Root mean squared error over that of n true answers; null where these have none. At r, n reports tell as much "
        "as n / r^2 true answers.",
    ),
}

UTILITY: Final = said(
    nullable(
        shaped(
            {
                "shares": said(
                    {"type": "string", "enum": ["truth", "norm_sub", "uniform"]},
                    "What the prediction takes for the true shares.",
                ),
                "predicted": shaped(
                    {**_ERRORS, "coverage": said(SHARE, "The level that the intervals state.")}
                ),
                "real": said(
                    nullable(shaped({**_ERRORS, "covered": COUNT, "values": COUNT})),
                    "Against the truth of a calibration metric; `covered` of `values` intervals hold it. Else null.",
                ),
            }
        )
    ),
    "How far off the estimates are; null without reports.",
)

SHUFFLED: Final = said(
    nullable(shaped({"epsilon": NUMBER, "delta": NUMBER, "assumption": TEXT})),
    "For information: what one report would reveal had all n been mixed by an anonymous channel, which Dither does not "
    "promise (Feldman, McMillan, Talwar 2021, for n cut to one digit); null where that says nothing.",
)

CALIBRATION: Final = said(
    nullable(listed(SHARE)),
    "True shares of a calibration metric in the order of the labels: devices draw their answers by them. Else null.",
)
