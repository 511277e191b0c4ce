"""The errors that refuse a request: an HTTP status, and type, code, param and message of OpenAI's error envelope.

Raised where the fact is known; one place, service/responses/refusals.py, turns them into HTTP. A message says which
value was wrong and what to do. It may quote a little of the request to its own sender, and must never reach a log.
"""

from collections.abc import Sequence

SHOWN_CHARS = 60

RETRY_SECONDS = 1
"""When a client may come back to a store or an engine that is down: the SDKs wait at least this long."""


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


class ApiError(Exception):
    """A refusal with its place in the envelope.

    `retry_after` (seconds) asks the client to come back, and `retry_after_ms` (milliseconds) says it more exactly.
    `retry` says whether a retry makes sense at all, which by default it does where the client is asked back. `allow`
    are the methods that a path has, where it lacks the one that was asked (RFC 9110, section 15.5.6).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        retry_after_ms: int | None = None,
        retry: bool | None = None,
        allow: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.retry_after_ms = retry_after_ms
        self.retry = retry_after is not None if retry is None else retry
        self.allow = allow


class InvalidRequest(ApiError):
    """400: the request is wrong in a way that a retry won't change."""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(400, message, code=code, param=param)


def brief(value: object) -> str:
    """A short form of a wrong value for its own sender."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def invalid_value(param: str, value: object, expected: str) -> InvalidRequest:
    return not_allowed(f"Invalid value for '{param}': {brief(value)}. {expected}", param)


def not_allowed(message: str, param: str) -> InvalidRequest:
    """A value that isn't allowed, in words of its own."""
    return InvalidRequest(message, code="invalid_value", param=param)


def missing(param: str, advice: str) -> InvalidRequest:
    """A parameter that must be there isn't."""
    return InvalidRequest(
        f"Missing required parameter: '{param}'. {advice}", code="missing_required_parameter", param=param
    )


def not_served(param: str, value: object, advice: str) -> InvalidRequest:
    """A parameter of the Responses API that this release doesn't serve."""
    return InvalidRequest(
        f"Unsupported parameter: '{param}' = {brief(value)} is not supported by this release. {advice}",
        code="unsupported_parameter",
        param=param,
    )


def context_length_exceeded(limit: int, tokens: int | None) -> InvalidRequest:
    """The prompt leaves no room for an answer. `tokens` is its length where all of it was counted. Clients read the
    first words, of OpenAI, and shorten what they send; see service/features/chats/dialects.py.
    """
    size = f"{tokens} tokens" if tokens is not None else f"more than {limit} tokens"
    return InvalidRequest(
        f"This model's maximum context length is {limit} tokens, and the prompt has {size}. Send less input, or "
        "continue from an earlier response.",
        code="context_length_exceeded",
        param="input",
    )


def previous_response_not_found(id: str) -> InvalidRequest:
    """The response to continue is unknown, deleted, evicted or somebody else's: one and the same to the outside."""
    return InvalidRequest(
        f"Previous response with id '{brief(id)}' not found. Send the whole conversation as input instead.",
        code="previous_response_not_found",
        param="previous_response_id",
    )


def unavailable(message: str, seconds: int = RETRY_SECONDS, *, code: str = "service_unavailable") -> ApiError:
    """503: come back in so many seconds."""
    return ApiError(503, message, type="server_error", code=code, retry_after=seconds)


def stopping() -> ApiError:
    """503: this process ends; another one may answer."""
    return unavailable("The service is stopping. Try again in a moment.")


def server_failure(message: str, *, status: int = 500, code: str = "server_error") -> ApiError:
    """500, or another status that no retry changes, with a reason that its caller may know."""
    return ApiError(status, message, type="server_error", code=code)
