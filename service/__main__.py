"""The entry point of the `harmonium` command. Never import anything here but at the last moment.

Until a command takes the signals over, there is nothing to clean up, and a Ctrl-C while Python still imports simply
ends the process: in the midst of an import it would be a traceback.
"""

import gc
import signal
import sys

CLIENT = (
    "ask",
    "bench",
    "chat",
    "show",
    "ls",
    "tree",
    "export",
    "import",
    "log",
    "diff",
    "tail",
    "wait",
    "cancel",
    "jobs",
    "rm",
    "completion",
)
"""The commands that talk to a service over HTTP, or need none."""


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # until it is imported, as what that makes stays
    if sys.argv[1:2] and sys.argv[1] in CLIENT:
        from service.commands.client.command_line import app  # which needs no settings, nor what these need
    else:
        from service.commands.command_line import alone, app

        alone(*sys.argv[1:2])
        if len(sys.argv) == 1:  # as a shell has it that asks what a word may become
            from service.commands.client.completion import know_shells

            know_shells()
    gc.freeze()
    gc.enable()
    app()


if __name__ == "__main__":
    main()
