"""The entry point of the `harmonium` command. Never import anything here but at the last moment.

Until a command takes the signals over, there is nothing to clean up, and a Ctrl-C while Python still imports simply
ends the process: in the midst of an import it would be a traceback.
"""

import signal
import sys


def main() -> None:
    """Run the command line: that of the clients, which imports no settings, where it has the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from typer.main import get_command

    from service.features.client.command_line import app as client

    commands = vars(get_command(client))["commands"]
    if sys.argv[1:2] and sys.argv[1] in commands:
        client()
    from service.commands.command_line import app
    from service.features.client.options import know_shells

    know_shells()  # a shell that completes a word runs this without arguments
    app()


if __name__ == "__main__":
    main()
