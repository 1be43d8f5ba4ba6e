"""A program for `instructions.py`, called with N, FOLDER and URL: N requests of ten reports to the WSGI application.

FOLDER has the registry and the keys, URL is the store.
"""

import io
import os
import sys
from pathlib import Path
from typing import Any

from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.wire import new_batch_id
from dither_server.app import create_app
from dither_server.settings import Settings
from ingest import KEY, batch_tail


def main() -> None:
    """Send batches, and end at once."""
    count, folder, url = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    app = create_app(
        Settings(
            store_url=url, registry=folder / "registry.toml", keys_file=folder / "keys.json", ack="memory"
        )
    )
    tail = batch_tail()
    for _ in range(count):
        body = f'{{"batch":"{encode_base64url(new_batch_id())}",{tail}'.encode()
        said: list[str] = []
        answer = b"".join(app(_environ(body), lambda status, headers, said=said: said.append(status)))
        if not said[0].startswith("202") or b'"accepted":10' not in answer.replace(b" ", b""):
            sys.stderr.write(f"{said[0]}: {answer!r}\n")
            os._exit(1)
    os._exit(0)


def _environ(body: bytes) -> dict[str, Any]:
    """A request as gunicorn hands it over."""
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/v1/reports",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8787",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_HOST": "127.0.0.1:8787",
        "HTTP_AUTHORIZATION": f"Bearer {KEY}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


if __name__ == "__main__":
    main()
