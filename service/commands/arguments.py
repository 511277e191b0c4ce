"""The command line's words: options, arguments, exit statuses, and Typer's script by which a shell completes them.

A shell asks by running `harmonium` without arguments and with VARIABLE set. Typer answers, once it knows shells. Never
import any of the service's own rooms here: clients start at once.
"""

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from typer.completion import get_completion_inspect_parameters
from typer.core import TyperArgument, TyperGroup, TyperOption

NAME = "harmonium"
VARIABLE = "_HARMONIUM_COMPLETE"
"""The variable that a shell sets when it asks: Typer derives it from NAME."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_REFUSED = 4
EXIT_UNREACHABLE = 5
"""No service, store or archive answers."""

EXIT_INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""

EXIT_STATUSES = {404: EXIT_NOT_FOUND, 401: EXIT_REFUSED, 403: EXIT_REFUSED, 429: EXIT_REFUSED}
"""Those that tell a script of a refusal with this status of HTTP; of others EXIT_FAILED."""

PANELS = RUN, TALK, LOOK, KEEP, OTHERS = "Run", "Talk", "Look", "Keep", "More"
"""The panels of commands in the help."""

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

know_shells = get_completion_inspect_parameters
"""Registers Typer's shells, which it does itself only where its own options for completion are wanted."""

TyperOption.display_type_rich = lambda self, ctx: self.metavar
TyperArgument.display_type_rich = lambda self, ctx: None
"""The help shows placeholders, where Typer shows types of Python, such as `<list[str]>`."""


def many(number: int, what: str) -> str:
    """A number of what is counted, in the singular where it is one."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def moment_of(text: str) -> int:
    """The second since 1970 of a date, a date and time, or so long ago. Raises ValueError."""
    if match := _AGO.fullmatch(text):
        return max(0, int(datetime.now(UTC).timestamp()) - int(match[1]) * _UNITS[match[2]])
    try:
        return max(0, int(datetime.fromisoformat(text).astimezone().timestamp()))
    except (ValueError, OverflowError):
        ways = "2026-11-23, 2026-11-23T10:00, or 30m, 2h or 7d"
        raise ValueError(f"{text[:60]!r} is not a time; write {ways}") from None


def flag(*words: str) -> Any:
    """An option that is there or not: its names, and its help."""
    *names, text = words
    return typer.Option(*names, metavar="", help=text)


def option(*words: str, panel: str | None = None) -> Any:
    """An option with a value: its names, unless it has its parameter's, the placeholder of its value, and its help."""
    *names, metavar, text = words
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, rich_help_panel=panel)


def amount(least: float, most: float | None, text: str, *names: str, metavar: str = "N") -> Any:
    """An option for a number within bounds. Its help names them, if there are two."""
    bounds = f"{least:g} or more" if most is None else f"{least:g} to {most:,}"

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= (math.inf if most is None else most):  # NaN is in no bounds
            raise typer.BadParameter(f"It should be {bounds}, not {value:g}.")
        return value

    return typer.Option(
        *names, metavar=metavar, callback=check, help=f"{text}." if most is None else f"{text}, {bounds}."
    )


def argument(metavar: str, text: str) -> Any:
    """An argument: its placeholder and its help."""
    return typer.Argument(metavar=metavar, help=text)


def command_line(kind: type[TyperGroup] | None = None) -> typer.Typer:
    """A command line as all of `harmonium`'s are, without commands."""
    return typer.Typer(
        name=NAME,
        cls=kind,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,  # its tracebacks show variables, and so could show keys
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


SHOWN = 20
"""The rows of a list, unless more are wanted."""

SINCE = "since this date, or in the last 2h or 7d."

Limit = Annotated[int, amount(1, 10_000, "The most rows")]
Yes = Annotated[bool, flag("--yes", "-y", "Don't ask.")]
AsLines = Annotated[bool, flag("--json", "Print a JSON object per line.")]
