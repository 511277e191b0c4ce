"""The entry point of the `harmonium` command. Never import anything here but at the last moment.

Until a command takes the signals over, there is nothing to clean up, and a Ctrl-C while Python still imports simply
ends the process: in the midst of an import it would be a traceback.
"""

import gc
import signal


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # until it is imported, as what that makes stays
    from service.commands.command_line import app

    gc.enable()
    app()


if __name__ == "__main__":
    main()
