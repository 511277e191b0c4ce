"""An engine that does as its users say: `Use functions.exec: {"cmd": "ls"}` makes it call that, and what a tool says it
says again. Several such lines are done one after the other. For clients of which a test chooses every turn, and which
ask for titles and advice of their own meanwhile.
"""

import json
import re
from itertools import groupby

from service.engine.port import Generation
from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, FIRST_SPECIAL, MESSAGE, RETURN, decode, encode
from tests.support.engine.scripted import ScriptedEngine
from tests.support.responses.samples import MARKS
from tests.support.service.inside import CARD

SAID_CHARS = 400
"""How much of a tool's output is said again."""

_NAMES = {mark: name for name, mark in MARKS.items()}
_WISH = re.compile(r"Use ([\w.-]+): ?(.*)")


def obedient() -> ScriptedEngine:
    """The engine."""
    return ScriptedEngine(CARD, lambda generation: [said(generation)])


def said(generation: Generation) -> list[int]:
    """The answer to a prompt: the next of the calls that were asked for last, or what tools have said since."""
    wishes, outputs, calls = list[tuple[str, str]](), list[str](), 0
    for message in shown(generation).split("<|start|>"):
        header, _, content = message.partition("<|message|>")
        content = content.partition("<|end|>")[0]
        if header.startswith("user") and (found := _WISH.findall(content)):
            wishes, outputs, calls = found, [], 0
        elif not header.startswith(("user", "system", "developer", "assistant")):
            outputs.append(content[:SAID_CHARS])
        calls += " to=" in header and header.startswith("assistant")
    # it is asked for further calls, too, before anything has answered the last one
    if calls < len(wishes) and calls == len(outputs):
        return _call(*wishes[calls])
    return _answer("\n".join(outputs) or "Fine.")


def shown(generation: Generation) -> str:
    """A prompt as text, with its marks written out."""
    return "".join(
        "".join(_NAMES[mark] for mark in ids) if special else decode([*ids])
        for special, ids in groupby(generation.prompt, lambda id: id >= FIRST_SPECIAL)
    )


def _answer(text: str) -> list[int]:
    return [CHANNEL, *encode("final"), MESSAGE, *encode(text), RETURN]


def _call(name: str, told: str) -> list[int]:
    """A call with JSON as arguments, whatever its client wrote behind it, or with a text as a custom tool's input."""
    header = [CHANNEL, *encode(f"commentary to={name}")]
    try:
        _, end = json.JSONDecoder().raw_decode(told)
    except ValueError:
        return [*header, MESSAGE, *encode(told), CALL]
    return [*header, *encode(" "), CONSTRAIN, *encode("json"), MESSAGE, *encode(told[:end]), CALL]
