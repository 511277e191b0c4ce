"""`harmonium completion`: the script by which a shell completes commands and options. Typer has the scripts and the
answers; here they are only asked for by the name of a shell.

A shell asks by running `harmonium` without arguments and with VARIABLE set. Typer answers, once it knows shells.
"""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete

NAME = "harmonium"
VARIABLE = "_HARMONIUM_COMPLETE"
"""What a shell sets when it asks: as Typer works it out of NAME."""


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print what has a shell complete commands and options: `eval "$(harmonium completion bash)"`, or `zsh`.

    For fish: `harmonium completion fish | source`. To have it in every shell, put that line into `~/.bashrc`,
    `~/.zshrc` (below `compinit`) or `~/.config/fish/config.fish`.
    """
    know_shells()
    raise typer.Exit(shell_complete(context.find_root().command, {}, NAME, VARIABLE, f"source_{shell.value}"))


know_shells = get_completion_inspect_parameters
"""Registers Typer's shells, which it does itself only where its own options for completion are wanted."""
