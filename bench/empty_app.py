"""The smallest Flask application: what the ingest route is measured against."""

from flask import Flask, Response

app = Flask("empty")


@app.post("/v1/reports")
def reports() -> Response:
    """Answer at once."""
    return Response(status=202)
