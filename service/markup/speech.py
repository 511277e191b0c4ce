"""What is said of a model that doesn't speak Harmony, and what its chat template is given."""

import msgspec

AUTO, HARMONY = "auto", "harmony"
"""What a model may be said to write besides the markup of a family: whatever its server shows it does, or Harmony."""


class Shown(msgspec.Struct, frozen=True):
    """What a chat template shows of tools: which there are, what was called, and what came of that."""

    tools: bool = True
    calls: bool = True
    outputs: bool = True


SHOWN = Shown()
"""All of it, as templates of models do that were trained with tools."""


class Speech(msgspec.Struct, frozen=True):
    """How a model speaks that doesn't speak Harmony: by its own chat template, and with the markup of its family.

    `marks` are the marks that are one id in its vocabulary, with their ids, and `ends` the ids that end its turn.
    Where nothing is said to it first, its prompt has an `empty_system` message, as its template would add a worse one.
    `shown` is what its template shows of tools.
    """

    family: str
    marks: tuple[tuple[str, int], ...] = ()
    ends: tuple[int, ...] = ()
    empty_system: bool = False
    shown: Shown = SHOWN


class Transcript(msgspec.Struct, frozen=True):
    """What a model's chat template makes a prompt of, all of it JSON in the form of Chat Completions: messages, tools,
    and the template's own options. The assistant speaks next. Where `own` stands in a text, in JSON too, it stands in a
    mark that is meant as one: nobody else can know it. It is no part of what the template gets.
    """

    messages: bytes
    tools: bytes = b"[]"
    options: bytes = b"{}"
    own: str = ""
