"""The commands of a client, called in this process as somebody types them."""

import json
import signal
from typing import Any

from typer.testing import CliRunner, Result

from service.commands.command_line import app


def run(*arguments: str, stdin: str = "") -> Result:
    """What a command prints, and how it ends."""
    kept = signal.getsignal(signal.SIGINT)
    try:
        return CliRunner().invoke(app, arguments, input=stdin)
    finally:
        signal.signal(signal.SIGINT, kept)


def said(*arguments: str, stdin: str = "", status: int = 0) -> str:
    """The result of a command that ends with that status."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout


def told(*arguments: str, stdin: str = "", status: int = 0) -> Any:
    """The JSON that a command prints."""
    return json.loads(said(*arguments, "--json", stdin=stdin, status=status))


def id_of(result: Result) -> str:
    """The id at the end of what `ask` says about its answer."""
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stderr.split()[-1]
