"""The edge of every command: what the system refuses becomes one sentence and an exit code, never a traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from dither_cli.exit_codes import ExitCode


@contextmanager
def clean_errors() -> Iterator[None]:
    """Turn `OSError` and `UnicodeError` into a message on stderr and exit code 1.

    What was printed is written out here, so that a full disk is noticed while it can still be said. A reader that has
    gone away (``| head``) is no news: the command ends without a word.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        sys.exit(ExitCode.FAILED)
    except (OSError, UnicodeError) as error:
        _give_up_output()
        click.echo(f"Error: {sentence(error)}", err=True)
        sys.exit(ExitCode.FAILED)


def sentence(error: OSError | UnicodeError) -> str:
    """What went wrong, with the file where it is known, and without a byte of what was read."""
    match error:
        case UnicodeDecodeError():
            return f"not {error.encoding}: {error.reason} at byte {error.start}"
        case UnicodeEncodeError():
            return f"the output is {error.encoding}, which lacks a character; set PYTHONIOENCODING=utf-8"
        case OSError(strerror=str(reason), filename=str(name)):
            return f"{name}: {reason}"
        case OSError(strerror=str(reason)):
            return reason
    return str(error)


def _give_up_output() -> None:
    """Where the output cannot be written, let what is left of it go nowhere: the interpreter would try again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, UnicodeError):
        with suppress(OSError, ValueError):  # a stream without a descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
