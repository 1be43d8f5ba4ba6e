"""The command group. Subcommands are imported when they are called, so that `dither --help` is quick."""

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from dither_cli.edge import clean_errors


class Lazy(NamedTuple):
    """A subcommand that is not imported yet."""

    module: str
    attribute: str
    help: str


COMMANDS: Final = {
    "serve": Lazy("dither_cli.serve", "serve", "Run the whole service: store, server and estimator."),
    "demo": Lazy(
        "dither_cli.demo", "demo", "Run the service against simulated devices and check the estimates."
    ),
    "simulate": Lazy(
        "dither_cli.simulate_command",
        "simulate_command",
        "Load a server with simulated devices and judge what it makes of them.",
    ),
    "estimate": Lazy(
        "dither_cli.estimate_command", "estimate", "Estimate frequencies from reports in a file."
    ),
    "metrics": Lazy("dither_cli.query_commands", "metrics", "List the metrics of a running service."),
    "estimates": Lazy("dither_cli.query_commands", "estimates", "Show the published estimates of a metric."),
    "quality": Lazy(
        "dither_cli.quality_command", "quality", "Say how far off the estimates of a metric are."
    ),
    "status": Lazy(
        "dither_cli.status_command", "status", "Say how a running service is: reports, workers, alarms."
    ),
    "plan": Lazy(
        "dither_cli.plan_command", "plan_command", "Say how exact estimates will be, before any report."
    ),
    "privacy": Lazy(
        "dither_cli.privacy_command", "privacy", "Say what one device can spend, per day, week, year, life."
    ),
    "audit": Lazy(
        "dither_cli.audit_command", "audit", "Check from outside that the SDK keeps the epsilon it declares."
    ),
    "registry": Lazy(
        "dither_cli.registry_commands", "registry", "Check, compare and sign registries of metrics."
    ),
    "keys": Lazy("dither_cli.keys_commands", "keys", "Make, list and revoke the keys of apps and people."),
    "store": Lazy("dither_cli.store_commands", "store", "Look at the store, and let it forget."),
}


class LazyGroup(click.Group):
    """A group whose commands stand in COMMANDS."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; what the system refuses is said in one sentence."""
        with clean_errors():
            return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; None where there is none of this name."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command: click.Command = getattr(import_module(lazy.module), lazy.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dither")
def cli() -> None:
    """Telemetry with local differential privacy: collect usage statistics without anybody's answers."""
