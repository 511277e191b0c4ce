"""`harmonium chat`: a conversation at a terminal, which may go back, try again and fork, as every turn stays.

The tree of what was said is the service's; here are only the ids of this conversation, and what the user typed.
"""

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module

from service.commands.client import asking, printing
from service.commands.client.errors import ClientError, Refused
from service.commands.client.service import Json, Service

MAX_TURNS = 10_000
"""How many turns one chat keeps."""

PROMPT = "> "
HELP = """\
/retry      ask the same once more, beside the answer that is there
/back       go back to the turn before; what you say next makes a fork
/fork N     go to turn N, and go on from there
/tree       the turns so far, with the one you are at
/new        begin anew
/id         the id of the response you are at
/help       this
/quit       end; so does Ctrl-D"""


@dataclass
class Said:
    """A turn of the chat: its number, the response, what the user typed, and the turn that it continues."""

    number: int
    id: str
    words: str
    before: "Said | None"


@dataclass
class Chat:
    """A conversation: where it is, and all that was said. `body` is what every request has."""

    service: Service
    body: Json
    reasoning: bool
    start: str | None = None
    at: Said | None = None
    turns: list[Said] = field(default_factory=list[Said])

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
                printing.told(HELP)
            case "/new", "":
                self.at, self.start = None, None
            case "/id", "":
                printing.out(self._id() or "nothing was said yet")
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
                raise ClientError(f"{printing.excerpt(command)} is no command, or takes no words; /help has all")
            case _:
                self.say(words)

    def say(self, words: str) -> None:
        """Say something and print the answer. Raises ClientError."""
        if len(self.turns) == MAX_TURNS:
            raise ClientError(f"a chat has at most {MAX_TURNS} turns; go on with `harmonium chat --from {self._id()}`")
        body = self.body | {"input": words}
        if (parent := self._id()) is not None:
            body["previous_response_id"] = parent
        answer = asking.stream(self.service, body, reasoning=self.reasoning)
        if answer.id is None:
            printing.told("interrupted before there was an answer")
            return
        if answer.interrupted:
            printing.told("interrupted; what was said so far is kept, and the next words continue it")
            self._wait_until_kept(answer.id)
        elif (reason := asking.why_not(answer.response)) is not None:
            printing.wrong(reason)
            if answer.response.get("status") == "failed":
                return  # nothing continues it
        self.at = Said(len(self.turns) + 1, answer.id, words, self.at)
        self.turns.append(self.at)

    def tree(self) -> list[str]:
        """The turns as a tree, each on a line, and a star at where one is."""
        lines: list[str] = []
        below: dict[int, list[Said]] = {}
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

    def _here(self) -> Said:
        if self.at is None:
            raise ClientError("nothing was said before this; say something")
        return self.at

    def _id(self) -> str | None:
        return self.at.id if self.at is not None else self.start

    def _wait_until_kept(self, id: str) -> None:
        """The service stores what was said when it notices that nobody reads it."""
        try:
            asking.kept(self.service, id)
        except Refused as error:
            printing.wrong(f"it was not kept: {error}")


def _line() -> str | None:
    """The user's next line, None at the end. Ctrl-C begins the line anew."""
    while True:
        try:
            return input(PROMPT if sys.stdin.isatty() else "")
        except KeyboardInterrupt:
            printing.told("")
        except EOFError:
            printing.told("")
            return None


def with_history() -> None:
    """Lines can be edited, and those before come back by the arrow keys, where Python has that."""
    with suppress(ImportError):  # some builds go without it
        import_module("readline")  # which is all it takes
