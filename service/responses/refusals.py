"""The one place where refusals and faults become HTTP: OpenAI's envelope with all four of its keys, always.

The store's errors are worded here for people who never heard of the store. An id that is unknown, deleted, evicted or
somebody else's gets one and the same answer.
"""

from service.api.response import Response, ResponseStatus
from service.engine.port import EngineError, EngineOverloaded, EngineRefused, PassedRefusal
from service.errors import (
    RETRY_SECONDS,
    ApiError,
    InvalidRequest,
    invalid_value,
    previous_response_not_found,
    server_failure,
    unavailable,
)
from store import errors
from store.turn import MOVES, Status

QUEUE_RETRY_SECONDS = 5
"""When a client may come back to a queue that is full: its responses take a while."""


def response_not_found(id: str) -> ApiError:
    """404 for a response that isn't there for this tenant."""
    return ApiError(404, f"Response with id '{id[:100]}' not found.", param="response_id")


def conversation_not_found(id: str) -> ApiError:
    """404 for a conversation that isn't there for this tenant, in OpenAI's words."""
    return ApiError(404, f"Conversation with id '{id[:100]}' not found.")


def conversation_locked() -> InvalidRequest:
    """400 for a second response of a conversation at once, in OpenAI's words: SDKs know the code, and try again."""
    return InvalidRequest(
        "Another process is currently operating on this conversation. Please retry in a few seconds.",
        code="conversation_locked",
        param="conversation",
    )


def unstored_parent(id: str) -> InvalidRequest:
    """400 for a response that is to be stored, on top of one that isn't."""
    return InvalidRequest(
        f"The response '{id[:100]}' is not stored, so its continuations can't be stored either. Send 'store': false, "
        "or send the whole conversation as input.",
        code="invalid_store_transition",
        param="store",
    )


def events_gone(seconds: float) -> InvalidRequest:
    """400 for the stream of a response whose events are no longer kept; `seconds` is for how long they are."""
    reason = f"Its events were stored for at most {seconds:g} s, and are deleted. Retrieve it without stream."
    return invalid_value("stream", "true", reason)


def refusal_of(error: Exception) -> ApiError:
    """The refusal that an exception is over HTTP. One that nobody foresaw is a bug: its reason is for the log alone."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, errors.StoreError):
        return _store_refusal(error)
    if isinstance(error, EngineError):
        return _engine_refusal(error)
    return server_failure(
        "The service failed on this request. Its log has the reason under the x-request-id of this answer."
    )


def _store_refusal(error: errors.StoreError) -> ApiError:
    """The HTTP error of a refusal by the store."""
    if isinstance(error, errors.ParentNotFound):
        return previous_response_not_found(error.id)
    if isinstance(error, errors.ConversationNotFound):
        return conversation_not_found(error.id)
    if isinstance(error, errors.NotFound):
        return response_not_found(error.id)
    if isinstance(error, errors.ConversationHeld | errors.ConversationMoved):
        return conversation_locked()
    if isinstance(error, errors.NotContinuable | errors.TurnTooLarge):
        return _parent_refusal(error)
    if isinstance(error, errors.NotTerminal):
        return InvalidRequest(
            f"Cannot delete an in-flight response. Cancel '{error.id}' first, or close the connection of a foreground "
            "response, or wait for its end. Before a conversation is deleted, all of its responses have to end.",
            param="response_id",
        )
    if isinstance(error, errors.NotCancellable):
        return InvalidRequest(_not_cancellable(error), param="response_id")
    if isinstance(error, errors.QueueFull):
        return _queue_refusal(error)
    if isinstance(error, errors.StoreFull):
        return _full_refusal(error)
    if isinstance(error, errors.Conflict):
        return unavailable("Another request with the same Idempotency-Key took over. Retry to get its answer.")
    if isinstance(error, errors.RegistryMoved):
        return unavailable("Other requests change the same project or key. Try again in a moment.")
    if isinstance(error, errors.NewerFormat):
        return server_failure(
            "A later release stored the requested data, and this one can't read it. Upgrade this service to the "
            "release of the others that share its store."
        )
    if isinstance(error, errors.ArchiveDamaged):
        return server_failure(
            "The archive's copy of this conversation is unreadable. Ask the operator: `harmonium archive verify`.",
            code="archive_damaged",
        )
    if isinstance(error, errors.ArchiveUnavailable | errors.ArchiveUnfit | errors.ArchiveForeign):
        return unavailable(
            "The requested data is not in memory, and the archive does not answer. It may still exist. Try again in a "
            "moment.",
            code="archive_unavailable",
        )
    if isinstance(error, errors.StoreBarred):
        return unavailable(
            "The conversation store has another layout than this process knows, so it must not use it. The operator "
            "has to upgrade this process."
        )
    if isinstance(error, errors.StoreReadOnly):
        return unavailable(
            "The conversation store accepts no writes at the moment; reading works. Try again in a moment."
        )
    if isinstance(error, errors.StoreUnconfirmed):
        return unavailable(
            "The conversation store can't confirm that a response is safe, because its replicas or its disk lag "
            "behind. "
            "Reading works. Try again in a moment."
        )
    return unavailable("The conversation store does not answer. Try again in a moment.")


def _full_refusal(error: errors.StoreFull) -> ApiError:
    """The HTTP error where there is no room for a turn."""
    if isinstance(error, errors.DiskFull):
        return server_failure(
            "The disk of the conversation store is nearly full, so nothing is stored. Delete responses, or make room "
            "on the disk; reading works.",
            status=507,
            code="disk_full",
        )
    why = "running responses need all of its data"
    if isinstance(error, errors.MemoryFull):
        why = "its server has no memory left"
    if isinstance(error, errors.StoreUnarchived):
        why, away = "the archive is slower than new responses", error.away
        if isinstance(away, errors.ArchiveUnavailable) and away.disk_full:
            return server_failure(
                "The conversation store is full, and so is the disk of its archive, so nothing can be evicted for a "
                "new response. Make room on that disk; reading works.",
                status=507,
                code="archive_full",
            )
        if away is not None:
            return unavailable(
                "The conversation store is full, and the archive accepts nothing, so nothing can be evicted for a new "
                "response. Try again in a moment.",
                code="archive_unavailable",
            )
    return unavailable(f"The conversation store is full, and {why}. Try again in a moment.", code="store_full")


def _queue_refusal(error: errors.QueueFull) -> ApiError:
    """Why no background response is accepted."""
    kind, part = (" with a completion window", "a quarter") if error.hours else ("", "half")
    remedy = "Try again later, or raise HARMONIUM_MAX_QUEUED_RESPONSES."
    message = f"{error.most} background responses{kind} are waiting. {remedy}"
    if error.what == "bytes":
        message = (
            f"The waiting background responses{kind} take {error.most} bytes already, {part} of "
            "HARMONIUM_MAX_EVENT_LOG_BYTES. Try again later."
        )
    return ApiError(429, message, type="rate_limit_error", code="queue_full", retry_after=QUEUE_RETRY_SECONDS)


def _parent_refusal(error: errors.NotContinuable | errors.TurnTooLarge) -> InvalidRequest:
    """Why nothing can be added to a conversation."""
    why = "and the conversation before it exceed the limits of the store"
    if isinstance(error, errors.ChainTooLong):
        why = "ends a conversation that is too long to continue"
    elif isinstance(error, errors.NotContinuable):
        return InvalidRequest(
            _not_continuable(error),
            code="previous_response_in_progress" if error.status in MOVES else "previous_response_not_continuable",
            param="previous_response_id",
        )
    message = f"The response '{error.id}' {why}. Start a new conversation with the important part."
    return InvalidRequest(message, code="conversation_too_long", param="previous_response_id")


def fork_refusal(error: errors.NotFound | errors.NotContinuable | errors.TurnTooLarge) -> ApiError:
    """Why nothing can be a fork of what a request names."""
    refused = refusal_of(error)
    return ApiError(refused.status, refused.message, code=refused.code, param="harmonium.fork_of")


def _not_continuable(error: errors.NotContinuable) -> str:
    """Why a response can't be continued, and the way out."""
    if error.status in MOVES:
        return f"The response '{error.id}' is {error.status} and can't be continued yet. Wait for its end."
    if error.status == Status.FAILED:
        return f"The response '{error.id}' has failed and can't be continued. Continue the one before it."
    return (
        f"The response '{error.id}' is {error.status} and can't be continued: it was made with store: false, or is "
        "just being stored. Try again in a moment, or send its output as input."
    )


def _not_cancellable(error: errors.NotCancellable) -> str:
    """Why a response can't be cancelled, in OpenAI's words, and how it ended where these leave that open."""
    if error.status is None:
        return "Cannot cancel a synchronous response. Close its connection instead."
    what = "Cannot cancel a completed response."
    return what if error.status == Status.COMPLETED else f"{what} This one is {error.status}."


def nothing_said(message: str, failure: Exception | None, *, timed_out: bool) -> ApiError:
    """The HTTP error of a plain response that failed without output, with the reason, so that SDKs raise.

    `failure` is the engine's, if it raised one, or a bug; else the time was up, or the engine ended without a reason. A
    retry is worth it unless the time was up: that would cost as much again.
    """
    if timed_out:
        return ApiError(504, message, type="server_error", code="timeout")
    if isinstance(failure, EngineError | None):
        return _engine_refusal(failure or EngineError(message), message)
    return refusal_of(failure)


def not_compacted(response: Response) -> ApiError:
    """A compaction without a complete summary, as an incomplete one would lose content silently. A retry may help."""
    why = "a budget ran out" if response.status is ResponseStatus.INCOMPLETE else f"it is {response.status.value}"
    return ApiError(
        500,
        f"The model wrote no complete summary: {why}. Try again, or compact a shorter conversation.",
        type="server_error",
        code="compaction_failed",
        retry=True,
    )


def _engine_refusal(failure: EngineError, message: str = "") -> ApiError:
    """The HTTP error of an engine's error. `message` replaces its own."""
    if isinstance(failure, PassedRefusal):
        return ApiError(failure.status, str(failure), code=failure.code or "engine_refused", param=failure.param)
    message = message or f"The engine can't serve this: {failure}"
    if isinstance(failure, EngineRefused):
        return InvalidRequest(message, code="engine_refused")
    retry_after = RETRY_SECONDS if failure.status == 503 else None
    if isinstance(failure, EngineOverloaded) and failure.seconds is not None:
        retry_after = failure.seconds
    return ApiError(
        failure.status, message, type="server_error", code="engine_error", retry_after=retry_after, retry=True
    )
