"""Asking for a response and printing it as it comes: `ask`, and each turn of `chat`."""

import time
from collections.abc import Generator
from dataclasses import dataclass

from service.commands.client import printing
from service.commands.client.errors import EXIT_FAILED, Refused, Unreachable
from service.commands.client.service import TERMINAL_EVENTS, TERMINAL_STATUSES, Json, Service

KEPT_SECONDS = 10.0
"""How long a service may take to notice that nobody reads an answer, and to store what it has."""

_SAID = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")


@dataclass
class Answer:
    """The answer to a request so far: the response as the last event has it, and whether it was broken off."""

    response: Json
    interrupted: bool = False

    @property
    def id(self) -> str | None:
        """Its id, None where not even that came."""
        return self.response.get("id")


def stream(service: Service, body: Json, *, reasoning: bool, words: bool = True) -> Answer:
    """Ask for a response and print what it says, and what the model thinks if that is wanted.

    A Ctrl-C ends the response too, as the service notices that nobody reads it; what was said until then is kept.
    Raises ClientError.
    """
    return printed(service.stream("POST", "/v1/responses", body | {"stream": True}), reasoning=reasoning, words=words)


def printed(events: Generator[Json], *, reasoning: bool, words: bool = True) -> Answer:
    """Print what a stream says up to the response's end. Raises ClientError where it ends before that."""
    answer, begun = Answer({}), ""
    try:
        for event in events:
            kind: str = event.get("type", "")
            if isinstance(response := event.get("response"), dict):
                answer.response = response
            if words and kind in _SAID:
                if begun == "thought":
                    printing.told("")
                begun = "said"
                printing.out(event["delta"], end="")
            elif reasoning and kind in _THOUGHT:
                begun = "thought"
                printing.told(event["delta"], end="")
            elif words and kind == "response.output_item.done" and event["item"].get("type") == "function_call":
                printing.out(printing.text_of(event["item"]))
            if kind in TERMINAL_EVENTS:
                break
        else:
            raise Unreachable("the stream ended before the response did")
    except KeyboardInterrupt:
        answer.interrupted = True
    finally:
        events.close()
        if begun:
            printing.out("") if begun == "said" else printing.told("")
    return answer


def begun(service: Service, body: Json) -> Json:
    """Ask for a background response that can be followed, and leave it at that. Raises ClientError."""
    events = service.stream("POST", "/v1/responses", body | {"background": True, "stream": True})
    try:
        for event in events:
            return event["response"]
    finally:
        events.close()
    raise Unreachable("the stream ended before it began")


def ended(response: Json) -> int:
    """Say why a response isn't completed, if so; the exit status."""
    if (reason := why_not(response)) is not None:
        printing.wrong(reason)
    return exit_status_of(response)


def exit_status_of(response: Json) -> int:
    """The exit status for a response: 0 where it is completed, or not at its end yet."""
    status = response.get("status")
    return 0 if status == "completed" or status not in TERMINAL_STATUSES else EXIT_FAILED


def why_not(response: Json) -> str | None:
    """Why a response isn't completed, in words, None where it is."""
    if exit_status_of(response) == 0:
        return None
    error: Json = response.get("error") or {}
    details: Json = response.get("incomplete_details") or {}
    reason = details.get("reason")
    why = error.get("message") or reason
    return f"the response is {response.get('status')}" + (f": {why}" if why else "")


def kept(service: Service, id: str) -> Json:
    """A response that was broken off, once it is stored. Raises Refused where it isn't after KEPT_SECONDS."""
    until = time.monotonic() + KEPT_SECONDS
    while True:
        try:
            return service.call("GET", f"/v1/responses/{id}")
        except Refused as error:
            if error.status != 404 or time.monotonic() > until:
                raise
        time.sleep(KEPT_SECONDS / 100)
