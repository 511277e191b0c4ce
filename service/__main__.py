"""The entry point of the `harmonium` command. Never import anything here but at the last moment.

Until a command takes the signals over, there is nothing to clean up, and a Ctrl-C while Python still imports simply
ends the process: in the midst of an import it would be a traceback.
"""

import signal
import sys
from importlib import import_module
from importlib.util import find_spec

CLIENT = "service.features.client"
"""The feature whose commands need nothing else of the service, and start at once."""


def main() -> None:
    """Run the command line: that of the client, which imports no settings, where it has the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    spec = find_spec(CLIENT)
    if spec is not None and spec.origin is not None:  # a folder of caches alone has no origin
        from typer.main import get_command

        client = import_module(f"{CLIENT}.command_line").app
        if sys.argv[1:2] and sys.argv[1] in vars(get_command(client))["commands"]:
            client()
    from service.commands.arguments import know_shells
    from service.commands.command_line import app

    know_shells()  # a shell that completes a word runs this without arguments
    app()


if __name__ == "__main__":
    main()
