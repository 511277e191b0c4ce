"""The facts that a response needs of a model that speaks by a chat template, and how its words become segments.

    messages ─▶ Transcript ─▶ the engine's template ─▶ ids of a prompt
    sampled ids and their text ─▶ a parser of the model's family ─▶ segments, as Harmony's

Segments name a message's recipient as Harmony does, so nothing behind them knows the model's markup.
Pure.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from service.engine.port import SERVER, SHOWN, ShownTools, Transcript
from service.features.models.markup.by_server import ByServer
from service.features.models.markup.calls import Schemas
from service.features.models.markup.families import FAMILIES, MARKUPS, Markup, ReasoningPlace
from service.features.models.markup.messages import chat_messages, form_of, messages_told
from service.features.models.markup.stream import StreamParser
from store.turn import StoredMessage

THOUGHT = b'"reasoning_content":'
"""Stands in the JSON of messages where one has reasoning: within a text its quotes are escaped."""

THINK_WITHIN = 8
"""How near the end of a prompt the mark of reasoning stands: only its rest and line ends come behind it."""


Parser = StreamParser | ByServer


class Chat(msgspec.Struct, frozen=True, dict=True):
    """How to ask for and read one response. Queued jobs hold it.

    `family`, `marks` and `ends` are those of the model's `Speech`. `names` are the tools' names by the recipient of
    their calls, `schemas` the JSON schemas of their arguments by name. `opening` and `history` are the messages of the
    prompt, JSON as in a Transcript: the request's instructions, and the conversation so far. `thinking` is whether the
    prompt ends inside of reasoning.
    """

    family: str
    marks: dict[str, int]
    ends: tuple[int, ...]
    names: dict[str, str]
    schemas: bytes
    opening: bytes
    history: bytes
    tools: bytes
    options: bytes
    thinking: bool = False
    turns: tuple[tuple[int, int], ...] = ()
    """Where turns stand in the prompt as they were sampled."""
    noted: bool = True
    """Whether the sampled ids are noted for later prompts: not where the prompt leaves messages out."""
    salt: bytes = b""
    """Of chance, for its note."""
    key: bytes = b""
    """Made of this salt and those of the conversation's notes, for digests."""
    shown: ShownTools = SHOWN
    """The parts of tools that the template shows."""
    own: str = ""
    """The secret text in our own marks; see Transcript."""
    about: int = 0
    """About how many tokens the prompt has, where only the server makes it."""
    sees: bool = False
    """Whether the model gets pictures."""
    keeps: bytes = b"{}"
    """The template's further options where there is earlier reasoning: they keep it."""

    @property
    def served(self) -> bool:
        """Whether the server makes the prompts, and reads the model itself."""
        return self.family == SERVER

    @property
    def spelled(self) -> tuple[str, ...]:
        """The marks that the engine has to spell out: all but those that end a turn."""
        return tuple(mark for mark, id in self.marks.items() if id not in self.ends)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(len(each) for each in (self.opening, self.history, self.tools, self.schemas))

    @cached_property
    def _recipients(self) -> dict[str, str]:
        """The recipients of calls, by the tool's name."""
        return {name: recipient for recipient, name in self.names.items()}

    @cached_property
    def _schemas(self) -> Schemas:
        return msgspec.json.decode(self.schemas, type=dict[str, dict[str, Any]])

    def parser(self, *, thinking: bool) -> Parser:
        """The parser of a generation; `thinking` is whether its prompt ends inside of reasoning."""
        if self.served:
            return ByServer(self._recipients)
        return StreamParser(self._markup, self.marks, self._schemas, self._recipients, thinking=thinking)

    @property
    def _markup(self) -> Markup:
        return MARKUPS["plain" if self.served else FAMILIES[self.family].markup]

    @property
    def _think_ids(self) -> tuple[int | None, int | None]:
        """The ids of the marks, or of their first parts, between which its model reasons, where they have any."""
        markup = self._markup
        opening, closing = (
            next(
                (self.marks[part] for part in (mark, *markup.parts) if mark.startswith(part) and part in self.marks),
                None,
            )
            for mark in (markup.think, markup.think_end)
        )
        return opening, closing

    @property
    def shows_reasoning(self) -> bool:
        """Whether the ids of a turn tell that there is reasoning in it, if its model reasons."""
        return FAMILIES[self.family].reasoning is ReasoningPlace.NONE or self._think_ids[0] is not None

    @cached_property
    def mark_ids(self) -> frozenset[int]:
        """The ids that are marks, but for the ends of turns."""
        return frozenset(self.marks.values()) - frozenset(self.ends)

    def transcript(self, messages: Sequence[StoredMessage], *, anew: bool = False) -> Transcript:
        """The prompt's messages, and these behind them; `anew` leaves the conversation before them out."""
        parts = (self.opening, b"[]" if anew else self.history, self.encode(messages))
        joined, options = join_lists(parts), self.options
        if THOUGHT in joined and self.keeps != b"{}":
            options = options[:-1] + b"," + self.keeps[1:]
        return Transcript(joined, self.tools, options, self.own)

    def encode(self, messages: Sequence[StoredMessage]) -> bytes:
        """Kept messages as the JSON of a Transcript, with their reasoning where a model of the family gets any."""
        family = FAMILIES[self.family]
        thoughts = family.reasoning is not ReasoningPlace.LEFT_OUT
        made = chat_messages(messages, self.names, thoughts=thoughts, sees=self.sees, digits=family.digits)
        form = form_of(family.markup, self.shown)
        return msgspec.json.encode(made if form is None else messages_told(made, form, self.shown, self.own))

    def thinks(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt ends inside of reasoning."""
        opening, closing = self._think_ids
        end = prompt[-THINK_WITHIN:]
        if opening is None or opening not in end or closing in end:
            return False
        answers = self._markup.around and self._markup.think  # its template begins answers with the same token
        return not answers or msgspec.json.decode(self.options, type=dict[str, Any]).get("thinking") is not False


def join_lists(parts: Sequence[bytes]) -> bytes:
    """JSON lists as one."""
    inside = (part[1:-1] for part in parts)
    return b"[" + b",".join(part for part in inside if part) + b"]"
