"""Why a command of the client ends, each with the exit status that a script can tell it by."""

from service.commands.arguments import EXIT_FAILED, EXIT_STATUSES, EXIT_UNREACHABLE

MAX_SHOWN_CHARS = 400


class ClientError(Exception):
    """A command can't do what it was asked for. Its text is for people; `exit_status` is for scripts."""

    def __init__(self, message: str, exit_status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class ServiceUnreachable(ClientError):
    """Nobody answers at the service's address, or the connection broke."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_UNREACHABLE)


class RefusedByService(ClientError):
    """The service answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        """`status` is that of HTTP."""
        super().__init__(f"{message[:MAX_SHOWN_CHARS]} (HTTP {status})", EXIT_STATUSES.get(status, EXIT_FAILED))
        self.status = status
