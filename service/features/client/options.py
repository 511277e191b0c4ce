"""The shared parts of the client's commands: the options that name a service, and how a command ends."""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import typer
from typer.completion import shell_complete

from service.commands.arguments import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    NAME,
    VARIABLE,
    argument,
    flag,
    know_shells,
    option,
)
from service.features.client import printing
from service.features.client.errors import ClientError
from service.features.client.profile import DEFAULT_URL, read_profile
from service.features.client.reading import whole_id
from service.features.client.service import RemoteService

Id = Annotated[str, argument("ID", "The id of a response, its beginning, or @last for the newest.")]
AsJson = Annotated[bool, flag("--json", "Print JSON.")]

PANEL = "Service"
_PROFILE = "A profile of ~/.config/harmonium/config.toml. Default: HARMONIUM_PROFILE, or the file's."
_KEY_ENV = "The variable with the key. Default: HARMONIUM_CLIENT_KEY."
SERVICE = {
    "url": option("--url", "URL", f"The service's address. Default: HARMONIUM_URL, or {DEFAULT_URL}.", panel=PANEL),
    "profile": option("--profile", "NAME", _PROFILE, panel=PANEL),
    "key_env": option("--key-env", "VARIABLE", _KEY_ENV, panel=PANEL),
}
"""The options that name a service, by the parameters of `service_of`."""

_IDS = ("id", "one", "other", "before")
"""The parameters of commands that name responses."""

_SHAPELESS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""The errors from reading an answer that lacks something, or has something else in its place."""


def _open_what_is_closed() -> None:
    """Have nothing to read, or nobody to read, where the caller has closed stdin, stdout or stderr."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def confirm(question: str) -> bool:
    """Whether the reader says yes. Raises ClientError where nobody is there to answer, KeyboardInterrupt for Ctrl-C."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        remedy = "" if sys.stdin.isatty() else ": without a terminal use --yes"
        raise ClientError(f"nothing was deleted{remedy}") from error


def talking(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command with the options that name a service, which it gets first, and whole ids. It ends the process with the
    status that it returns, or that its error has.
    """

    @functools.wraps(command)
    def run(**given: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _open_what_is_closed()
        printing.choose_styles(environment())
        try:
            status = _run(command, given)
        except ClientError as error:
            printing.wrong(str(error))
            status = error.exit_status
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
        except OSError as error:
            if not isinstance(error, BrokenPipeError):  # then whoever read the output has enough
                printing.wrong(f"can't write: {error.strerror or error}")
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = EXIT_FAILED
        raise typer.Exit(status or 0)

    _, *own = inspect.signature(command).parameters.values()
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])
        for name, option in SERVICE.items()
    ]
    run.__dict__["__signature__"] = inspect.Signature([*own, *named])  # where Typer looks for options
    return run


def _run(command: Callable[..., int | None], given: dict[str, Any]) -> int | None:
    service = service_of(**{name: given.pop(name) for name in SERVICE})
    try:
        ids = {name: whole_id(service, given[name]) for name in _IDS if given.get(name) is not None}
        return command(service, **given | ids)
    except _SHAPELESS as error:
        raise ClientError(f"not an answer of harmonium: {type(error).__name__}: {error}") from error


def environment() -> Mapping[str, str]:
    """The variables that commands of the client may read."""
    return os.environ


def service_of(url: str | None = None, profile: str | None = None, key_env: str | None = None) -> RemoteService:
    """The service that is meant. Raises ClientError."""
    return RemoteService(read_profile(url, profile, key_env, environment()))


def completion(
    context: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], argument("bash|zsh|fish", "The shell.")],
) -> None:
    """Print the completion script for bash, zsh or fish.

    `eval "$(harmonium completion bash)"`, or `zsh`; `harmonium completion fish | source`. To have it in every shell,
    put that line into `~/.bashrc`, `~/.zshrc` (below `compinit`) or `~/.config/fish/config.fish`.
    """
    know_shells()
    raise typer.Exit(shell_complete(context.find_root().command, {}, NAME, VARIABLE, f"source_{shell}"))
