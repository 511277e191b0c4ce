"""What the conformance suite asks of a markup's test class: how its models write, what reads them, what one lacks.

A family of a chat template is its name. Never put a test here.
"""

import random
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
import pytest

from service.api.tools.callee import Callee
from service.features.models.markup.chat import Parser
from service.features.models.markup.families import FAMILIES, MARKUPS
from service.features.models.templated import TemplatedChat
from service.responses.output.machine import Machine
from service.responses.output.rules import Rules
from tests.support.markup import writing
from tests.support.markup.speaker import Say, Speaker
from tests.support.markup.streams import END, SCHEMAS, SPECIAL, Token, parser, tokens_of
from tests.support.markup.writing import Turn, written
from tests.support.responses import samples

Ability = Literal["reasoning", "calls", "constraints", "formats", "text before calls"]

CALLEES = tuple(Callee(name) for name in SCHEMAS)


class MarkupHooks:
    """The hooks, of a family whose markup is read here."""

    family: ClassVar[str]
    lacks: ClassVar[dict[Ability, str]] = {}
    served_like: ClassVar[str] = ""
    """A markup whose calls have the same form: without `full`, only that one is tested with a service."""

    @property
    def markup(self) -> str:
        return FAMILIES[self.family].markup

    @property
    def marks(self) -> list[str]:
        return list(MARKUPS[self.markup].spellings)

    def need(self, ability: Ability) -> None:
        """Skip the test, saying why, where the markup declares that it lacks the ability."""
        if ability in self.lacks:
            pytest.skip(f"{type(self).__name__} lacks {ability!r}: {self.lacks[ability]}")

    def able(self, turn: Turn) -> Turn:
        """As much of a turn as the markup can say."""
        calls = bool(turn.calls) and "calls" not in self.lacks
        text = "" if calls and "text before calls" in self.lacks else turn.text
        return turn._replace(
            text=text,
            reasoning="" if "reasoning" in self.lacks else turn.reasoning,
            calls=turn.calls if calls else (),
            behind=turn.behind if calls else "",
        )

    def written(self, turn: Turn) -> str:
        """A turn as its models write it, up to the mark that ends it."""
        return written(self.markup, turn)

    def tokens(self, text: str, *, spelled: bool = False, seed: int = 0, longest: int = 4) -> list[Token]:
        """A text as tokens of so many characters at most; `spelled` is whether its marks are none."""
        return tokens_of(text, self._special(spelled), seed=seed, longest=longest)

    def mutated(self, tokens: Sequence[Token], chance: random.Random, most: int) -> list[Token]:
        """The tokens with up to so many mutations."""
        return writing.mutated(tokens, self.marks, chance, most)

    def reader(self, *, spelled: bool = False, thinking: bool = False) -> Parser:
        return parser(self.markup, self._special(spelled), thinking=thinking)

    def machine(self, rules: Rules) -> Machine:
        """A machine for a response by such rules."""
        names = {callee.recipient: callee.name for callee in CALLEES}
        marks = {mark: SPECIAL[mark] for mark in (*self._special(spelled=False), END)}
        chat = TemplatedChat(
            self.family, marks, (SPECIAL[END],), names, msgspec.json.encode(SCHEMAS), b"[]", b"[]", b"[]", b"{}"
        )
        rules = msgspec.structs.replace(rules, callees=CALLEES, parallel=100, chat=chat)
        return Machine(samples.created(), rules, samples.PROMPT_TOKENS)

    def speaker(self, say: Say) -> Speaker:
        """An engine over such a model."""
        return Speaker(self.family, say)

    def _special(self, spelled: bool) -> list[str]:
        return [] if spelled else [mark for mark in self.marks if mark in SPECIAL]
