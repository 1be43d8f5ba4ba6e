"""What the children of `dither serve` are: programs, environment, limits."""

import hashlib
import json
import os
import platform
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dither_cli.address import Address
from dither_cli.child_process import ChildSpec
from dither_cli.embedded_store import STOP_LIMIT_S as STORE_STOP_LIMIT_S
from dither_cli.state_dir import StateDir

STOP_LIMITS_S: Final = {"ingest": 10.0, "estimator": 15.0, "store": STORE_STOP_LIMIT_S}
"""Seconds from SIGTERM to SIGKILL, in the order of stopping: first nothing new comes in, then what came is counted."""

_GUNICORN_CONFIG_CODES: Final = frozenset({3, 4})  # a worker cannot boot; the application cannot be loaded
_WORKER_CONFIG_CODES: Final = frozenset({os.EX_CONFIG})
_HTTP_LIMIT_S: Final = 2.0
_SECRETS: Final = ("DITHER_INGEST_KEY", "DITHER_OPERATOR_TOKEN", "DITHER_ENDPOINT")

# A proxy of the user's environment has no business between a machine and itself.
_opener: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def child_environ(environ: Mapping[str, str], store_url: str) -> dict[str, str]:
    """The environment of ingest and estimator: the user's, without plain keys, with the store."""
    kept = {name: value for name, value in environ.items() if name not in _SECRETS}
    return kept | {"DITHER_STORE_URL": store_url, "PYTHONUNBUFFERED": "1"}


def ingest_spec(
    state: StateDir, address: Address, workers: int, environ: Mapping[str, str], *, needs: tuple[str, ...]
) -> ChildSpec:
    """Gunicorn with the server's application."""
    own = {
        "DITHER_REGISTRY": str(state.registry),
        "DITHER_KEYS_FILE": str(state.keys),
        "DITHER_ROLE": "all",
        "DITHER_BIND": address.bind,
        "DITHER_WORKERS": str(workers),
    }
    application = ("-c", "python:dither_server.gunicorn_config", "dither_server.app:create_app_from_env()")
    return ChildSpec(
        name="ingest",
        command=(sys.executable, "-m", "gunicorn", *application),
        environ={**environ, **own},
        directory=state.path,
        probe=lambda: problem_at(address.base_url + "/healthz"),
        needs=needs,
        stop_limit_s=STOP_LIMITS_S["ingest"],
        config_exit_codes=_GUNICORN_CONFIG_CODES,
    )


def estimator_spec(state: StateDir, environ: Mapping[str, str], *, needs: tuple[str, ...]) -> ChildSpec:
    """The worker that counts and publishes."""
    return ChildSpec(
        name="estimator",
        command=(sys.executable, "-m", "dither_estimator.worker"),
        environ={"DITHER_WORKER_NAME": worker_name(state), **environ},
        directory=state.path,
        needs=needs,
        stop_limit_s=STOP_LIMITS_S["estimator"],
        config_exit_codes=_WORKER_CONFIG_CODES,
    )


def worker_name(state: StateDir) -> str:
    """The same after each restart, so that the estimator takes its own leases over; another one for another serve."""
    place = f"{platform.node()}:{state.path}"
    return f"serve-{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def problem_at(url: str) -> str | None:
    """None if a GET answers 200; else what is wrong, in words."""
    try:
        with _opener.open(url, timeout=_HTTP_LIMIT_S):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return f"answers {error.code}{_detail(error.read(4_096))}"
    except OSError:
        return "does not answer yet"


def _detail(body: bytes) -> str:
    """What an RFC 9457 problem says, with the names of failing checks; nothing for any other body."""
    try:
        problem = json.loads(body)
        failing = ", ".join(map(str, problem.get("failing", ())))
        return f": {problem.get('detail') or problem['title']}" + (f" ({failing})" if failing else "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def example_registry() -> Path:
    """The registry that is used where none is given."""
    return Path(__file__).with_name("data") / "example_registry.toml"
