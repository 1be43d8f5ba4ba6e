"""`dither serve`: the whole service in one command."""

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import click
from rich.console import Console
from rich.markup import escape

from dither_cli.errors import ServeError
from dither_cli.exit_codes import ExitCode
from dither_cli.service import Service, ServiceOptions
from dither_cli.signals import handled
from dither_cli.state_dir import default_state_dir
from dither_protocol.errors import RegistryError
from dither_server.settings import ConfigurationError, Settings

_MEMORY: Final = re.compile(r"[1-9][0-9]*(b|kb?|mb?|gb?)?", re.ASCII | re.IGNORECASE)


def check_memory(_: click.Context, __: click.Parameter, value: str) -> str:
    """Refuse what the store would not take as a size."""
    if not _MEMORY.fullmatch(value):
        raise click.BadParameter("must be a size such as 512mb or 1gb")
    return value


def check_store_url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what the server would refuse; the URL is not repeated, since it may hold a password."""
    if not value:
        return None
    required = {"DITHER_STORE_URL": value, "DITHER_REGISTRY": "-", "DITHER_KEYS_FILE": "-"}
    try:
        return Settings.from_env(required).store_url
    except ConfigurationError as error:
        raise click.BadParameter(error.problem) from None


@click.command(short_help="Run the whole service: store, server and estimator.")
@click.option(
    "--registry",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Registry of metrics, TOML or signed.  [default: the example registry]",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where data, keys and logs lie.  [default: $DITHER_HOME, or the user's state folder]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8787, show_default=True, type=click.IntRange(0, 65_535), help="0 picks a free one."
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 64), help="Server processes.")
@click.option(
    "--store-url",
    envvar="DITHER_STORE_URL",
    callback=check_store_url,
    help="An external Redis or Valkey, instead of the embedded one.  [env: DITHER_STORE_URL]",
)
@click.option(
    "--store-maxmemory",
    envvar="DITHER_STORE_MAXMEMORY",
    default="1gb",
    show_default=True,
    callback=check_memory,
    help="Memory limit of the embedded store.  [env: DITHER_STORE_MAXMEMORY]",
)
@click.option(
    "--archive",
    envvar="DITHER_ARCHIVE",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep every counted report in this folder, as Parquet.  [env: DITHER_ARCHIVE]",
)
def serve(
    *,
    registry: Path | None,
    state_dir: Path | None,
    host: str,
    port: int,
    workers: int,
    store_url: str | None,
    store_maxmemory: str,
    archive: Path | None,
) -> None:
    """Run the whole service on this machine: store, server and estimator. Ctrl-C stops it in order."""
    options = ServiceOptions(
        state_dir=state_dir or default_state_dir(os.environ, Path.home()),
        registry=registry,
        host=host,
        port=port,
        workers=workers,
        store_url=store_url,
        store_maxmemory=store_maxmemory,
        archive=archive,
    )
    try:
        with logged_to_stderr():
            run(Service(options))
    except RegistryError as error:
        fail(f"the registry is refused: {error}", ExitCode.FAILED)
    except ServeError as error:
        fail(str(error), error.exit_code)
    except OSError as error:  # a full disk, a file that may not be written
        fail(str(error), ExitCode.SERVICE)


def run(service: Service) -> None:
    """Start the service, say where it is, and keep it until a signal comes."""
    with stopped_by_signals(service), service:
        service.launch()
        if service.wait_ready():
            announce(service, Console(highlight=False, soft_wrap=True))
        service.wait()


@contextmanager
def stopped_by_signals(service: Service) -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP asks for the ordered stop, the second takes away its patience."""
    asked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            service.hasten()
        else:
            service.request_stop()
        asked = True

    with handled(on_signal):
        yield


def announce(service: Service, console: Console) -> None:
    """Print where everything is. The keys are printed too: the terminal belongs to whoever made them."""
    rows = {
        "dashboard": service.dashboard_url,
        "URL": service.base_url,
        "reports go to": f"{service.base_url}/v1/reports",
        "ingest key": service.ingest_key,
        "operator token": service.operator_token,
        "state": str(service.state.path),
        "logs": str(service.state.logs),
    }
    console.print(f"\n[bold green]Dither collects for {escape(service.project)}.[/]\n")
    for name, value in rows.items():
        console.print(f"  [bold]{name:<15}[/] {escape(value)}")
    console.print("\nIn another shell:")
    console.print(f"  source {escape(shlex.quote(str(service.state.env)))}")
    console.print('  curl -H "Authorization: Bearer $DITHER_OPERATOR_TOKEN" $DITHER_ENDPOINT/v1/metrics')
    console.print("  dither status")
    if not service.address.local:
        console.print(
            "\n[yellow]Other machines can reach this address, and it speaks plain HTTP: put TLS before it.[/]"
        )
    console.print("\nCtrl-C stops it; what has been accepted is kept.\n")


@contextmanager
def logged_to_stderr() -> Iterator[None]:
    """One line per event, with its time in UTC."""
    formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logger = logging.getLogger("dither_cli")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def fail(message: str, code: ExitCode) -> None:
    """Say why on stderr and exit."""
    click.echo(f"dither serve: {message}", err=True)
    raise SystemExit(code)
