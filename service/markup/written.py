"""What is in the turns of a model: as its card says it to whoever asks what a model can do. Pure."""

import msgspec

from service.markup.families import FAMILIES, Reasoning
from service.markup.parsers.parser import MARKUPS
from service.markup.speech import HARMONY, SERVER, Speech
from service.markup.tags import FORMS


class Written(msgspec.Struct, frozen=True):
    """The markup's name, whether it has reasoning and calls, and whether calls can be constrained."""

    markup: str
    reasoning: bool = True
    calls: bool = True
    held_calls: bool = True


def written_by(speech: Speech | None) -> Written:
    """What a model writes; None speaks Harmony."""
    if speech is None:
        return Written(HARMONY)
    if speech.family == SERVER:
        return Written(SERVER)
    family = FAMILIES[speech.family]
    markup = MARKUPS[family.markup]
    return Written(family.markup, family.reasoning is not Reasoning.NONE, bool(markup.call), family.markup in FORMS)
