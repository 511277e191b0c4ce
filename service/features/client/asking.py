"""Asking for a response and printing it as it comes: `harmonium ask`, and each turn of `harmonium chat`.

A chat may go back, try again and fork, as every turn stays. The tree of what was said is the service's; here are only
the ids of this conversation, and what the user typed.
"""

import sys
import time
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib import import_module

from service.commands.arguments import EXIT_FAILED
from service.features.client import printing
from service.features.client.errors import ClientError, RefusedByService, ServiceUnreachable
from service.features.client.service import TERMINAL_EVENTS, TERMINAL_STATUSES, Json, RemoteService

KEPT_SECONDS = 10.0
"""How long a service may take to notice that nobody reads an answer, and to store what it has."""

_SAID = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")

MAX_TURNS = 10_000
"""How many turns one chat keeps."""

PROMPT = "> "
HELP = """\
/retry      repeat the request, beside the existing answer
/back       go back to the turn before; your next message makes a fork
/fork N     go to turn N, and continue from there
/tree       the turns so far, with the current one
/new        begin a new conversation
/id         the id of the current response
/help       this
/quit       end; so does Ctrl-D"""


@dataclass
class AnswerSoFar:
    """The answer to a request so far: the response as the last event has it, and whether it was broken off."""

    response: Json
    interrupted: bool = False

    @property
    def id(self) -> str | None:
        """Its id, None where not even that came."""
        return self.response.get("id")


def print_answer(events: Generator[Json], *, reasoning: bool, words: bool = True) -> AnswerSoFar:
    """Print what a stream says up to the response's end, and what the model thinks if `reasoning` is wanted.

    A Ctrl-C ends a response that is streamed too, as the service notices that nobody reads it; what was said until then
    is kept. Raises ClientError where the stream ends before the response.
    """
    answer, begun = AnswerSoFar({}), ""
    try:
        for event in events:
            kind: str = event.get("type", "")
            if isinstance(response := event.get("response"), dict):
                answer.response = response
            if words and kind in _SAID:
                if begun == "thought":
                    printing.remark("")
                begun = "said"
                printing.out(event["delta"], end="")
            elif reasoning and kind in _THOUGHT:
                begun = "thought"
                printing.remark(event["delta"], end="")
            elif words and kind == "response.output_item.done" and event["item"].get("type") == "function_call":
                printing.out(printing.text_of(event["item"]))
            if kind in TERMINAL_EVENTS:
                break
        else:
            raise ServiceUnreachable("the stream ended before the response did")
    except KeyboardInterrupt:
        answer.interrupted = True
    finally:
        events.close()
        if begun:
            printing.out("") if begun == "said" else printing.remark("")
    return answer


def begin(service: RemoteService, body: Json) -> Json:
    """Ask for a background response that can be followed, and leave it at that. Raises ClientError."""
    with closing(service.stream("POST", "/v1/responses", body | {"background": True, "stream": True})) as events:
        for event in events:
            return event["response"]
    raise ServiceUnreachable("the stream ended before it began")


def exit_status(response: Json) -> int:
    """Say why a response isn't completed, if so; the exit status."""
    if (reason := why_not(response)) is None:
        return 0
    printing.wrong(reason)
    return EXIT_FAILED


def why_not(response: Json) -> str | None:
    """Why a response has ended without being completed, in words, None where it hasn't."""
    status = response.get("status")
    if status == "completed" or status not in TERMINAL_STATUSES:
        return None
    error: Json = response.get("error") or {}
    details: Json = response.get("incomplete_details") or {}
    why = error.get("message") or details.get("reason")
    return f"the response is {status}" + (f": {why}" if why else "")


@dataclass
class SaidTurn:
    """A turn of the chat: its number, the response, what the user typed, and the turn that it continues."""

    number: int
    id: str
    words: str
    before: "SaidTurn | None"


@dataclass
class OpenChat:
    """A conversation: where it is, and all that was said. `body` is what every request has."""

    service: RemoteService
    body: Json
    reasoning: bool
    start: str | None = None
    at: SaidTurn | None = None
    turns: list[SaidTurn] = field(default_factory=list[SaidTurn])

    def run(self) -> None:
        """Read lines until the user ends it. Raises ClientError where the service can't be reached at the first."""
        while (line := _line()) is not None:
            words = line.strip()
            if words == "/quit":
                return
            if not words:
                continue
            try:
                self._do(words)
            except ClientError as error:
                printing.wrong(str(error))

    def _do(self, words: str) -> None:
        """One line: a command, or what is said. Raises ClientError."""
        command, _, rest = words.partition(" ")
        match command, rest.strip():
            case "/help", "":
                printing.remark(HELP)
            case "/new", "":
                self.at, self.start = None, None
            case "/id", "":
                printing.out(self._id() or "the chat has no turn yet")
            case "/tree", "":
                for line in self.tree():
                    printing.out(line)
            case "/back", "":
                self.at = self._here().before
            case "/fork", number if number.isdecimal() and 1 <= int(number) <= len(self.turns):
                self.at = self.turns[int(number) - 1]
            case "/fork", _:
                raise ClientError(f"/fork takes the number of a turn, 1 to {len(self.turns)}; /tree shows them")
            case "/retry", "":
                here = self._here()
                self.at = here.before
                self.say(here.words)
            case _ if command.startswith("/"):
                raise ClientError(f"{printing.excerpt(command)} is not a command, or takes no words; /help lists all")
            case _:
                self.say(words)

    def say(self, words: str) -> None:
        """Say something and print the answer. Raises ClientError."""
        if len(self.turns) == MAX_TURNS:
            raise ClientError(
                f"a chat has at most {MAX_TURNS} turns; continue with `harmonium chat --from {self._id()}`"
            )
        body = self.body | {"input": words, "stream": True}
        if (parent := self._id()) is not None:
            body["previous_response_id"] = parent
        answer = print_answer(self.service.stream("POST", "/v1/responses", body), reasoning=self.reasoning)
        if answer.id is None:
            printing.remark("interrupted before there was an answer")
            return
        if answer.interrupted:
            printing.remark("interrupted; the output so far is stored, and the next message continues it")
            self._wait_until_kept(answer.id)
        elif (reason := why_not(answer.response)) is not None:
            printing.wrong(reason)
            if answer.response.get("status") == "failed":
                return  # nothing continues it
        self.at = SaidTurn(len(self.turns) + 1, answer.id, words, self.at)
        self.turns.append(self.at)

    def tree(self) -> list[str]:
        """The turns as a tree, each on a line, and a star at where one is."""
        lines: list[str] = []
        below: dict[int, list[SaidTurn]] = {}
        for turn in self.turns:
            below.setdefault(turn.before.number if turn.before else 0, []).append(turn)
        waiting = [(turn, 0) for turn in reversed(below.get(0, []))]
        while waiting:
            turn, depth = waiting.pop()
            mark = "*" if turn is self.at else " "
            lines.append(f"{mark} {'| ' * depth}{turn.number}  {printing.excerpt(turn.words)}")
            children = below.get(turn.number, [])
            waiting += [
                (child, depth + (len(children) > 1 and child is not children[-1])) for child in reversed(children)
            ]
        return lines

    def _here(self) -> SaidTurn:
        if self.at is None:
            raise ClientError("there is no earlier message; write one")
        return self.at

    def _id(self) -> str | None:
        return self.at.id if self.at is not None else self.start

    def _wait_until_kept(self, id: str) -> None:
        """The service stores what was said when it notices that nobody reads it."""
        until = time.monotonic() + KEPT_SECONDS
        while True:
            try:
                self.service.call("GET", f"/v1/responses/{id}")
                return
            except RefusedByService as error:
                if error.status != 404 or time.monotonic() > until:
                    printing.wrong(f"the output was not stored: {error}")
                    return
            time.sleep(KEPT_SECONDS / 100)


def _line() -> str | None:
    """The user's next line, None at the end. Ctrl-C begins the line anew."""
    while True:
        try:
            return input(PROMPT if sys.stdin.isatty() else "")
        except KeyboardInterrupt:
            printing.remark("")
        except EOFError:
            printing.remark("")
            return None


def with_history() -> None:
    """Lines can be edited, and those before come back by the arrow keys, where Python has that."""
    with suppress(ImportError):  # some builds go without it
        import_module("readline")  # which is all it takes
