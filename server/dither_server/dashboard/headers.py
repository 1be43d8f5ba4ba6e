"""The headers with which every answer of the dashboard leaves."""

from typing import Final

from flask import Response

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""No script but our own files. Inline styles are allowed since plotly sets them."""

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def harden(answer: Response) -> Response:
    """Add the headers to an answer; it is not stored unless it says otherwise itself."""
    answer.headers.update(_HEADERS)
    answer.headers.setdefault("Cache-Control", "no-store")
    return answer
