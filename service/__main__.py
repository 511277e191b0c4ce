"""The entry point of the `harmonium` command. Never import anything here but at the last moment.

Until a command takes the signals over, there is nothing to clean up, and a Ctrl-C while Python still imports simply
ends the process: in the midst of an import it would be a traceback.
"""

import gc
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

FEATURES = "service.features"
PROCESSES = ("serve", "worker")
"""The commands that run a process, and need no others."""

AT_ONCE = ("client.command_line", "client.erasing", "batches.command", "trajectories.command", "trajectories.replay")
"""The features' command lines that need nothing else of the service but the first one, and start at once."""


def main() -> None:
    """Run the command line. What it imports stays for good, and is never looked through for garbage."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    command_line = _command_line(sys.argv[1] if sys.argv[1:] else "")
    gc.freeze()
    gc.enable()
    command_line()


def _command_line(command: str) -> Callable[[], None]:
    """The command line that has the command: of a process, of the client, which imports no settings, or of all."""
    if command in PROCESSES:
        from service.commands.running import app

        return app
    if _is_there(AT_ONCE[0]):
        from typer.main import get_group

        client = import_module(f"{FEATURES}.{AT_ONCE[0]}").app
        for place in filter(_is_there, AT_ONCE):
            own = import_module(f"{FEATURES}.{place}").app
            if own is not client:
                client.add_typer(own, name="")
            if command in vars(get_group(own))["commands"]:
                return client
    from service.commands.arguments import know_shells
    from service.commands.command_line import app

    know_shells()  # a shell that completes a word runs this without arguments
    return app


def _is_there(place: str) -> bool:
    """Whether the feature of this command line is installed; a folder of caches alone has no origin."""
    spec = find_spec(f"{FEATURES}.{place.partition('.')[0]}")
    return spec is not None and spec.origin is not None


if __name__ == "__main__":
    main()
