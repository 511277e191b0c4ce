"""How a response ends: from the end of its generation to its status, and the events that say so."""

from enum import StrEnum

from service.api import events
from service.api.events import Event
from service.api.response import Response, ResponseStatus


class Ending(StrEnum):
    """How a generation ended, which decides how the response ends (`STATUS`)."""

    STOP = "stop"
    LENGTH = "length"
    STEERED = "steered"
    ABORT = "abort"
    TIMEOUT = "timeout"
    ERROR = "error"
    UNASKED = "unasked"


STATUS = {
    Ending.STOP: ResponseStatus.COMPLETED,  # the model ended by itself
    Ending.LENGTH: ResponseStatus.INCOMPLETE,  # a budget of tokens ended it
    Ending.STEERED: ResponseStatus.INCOMPLETE,  # the caller said something meanwhile, which the next one answers
    Ending.ABORT: ResponseStatus.CANCELLED,  # the caller went away, or the engine was stopped
    Ending.TIMEOUT: ResponseStatus.FAILED,  # it took longer than a request may
    Ending.ERROR: ResponseStatus.FAILED,  # the engine failed
    Ending.UNASKED: ResponseStatus.COMPLETED,  # nothing was to be sampled
}
_TERMINAL = {
    ResponseStatus.COMPLETED: events.ResponseCompleted,
    ResponseStatus.INCOMPLETE: events.ResponseIncomplete,
    ResponseStatus.CANCELLED: events.ResponseFailed,
    ResponseStatus.FAILED: events.ResponseFailed,
}


def terminal(response: Response) -> list[Event]:
    """The last events: the terminal one, and before a failure's an `error` that says why."""
    out: list[Event] = []
    if response.error is not None:
        out.append(events.Error(code=response.error.code, message=response.error.message))
    out.append(_TERMINAL[response.status](response=response))
    return out
