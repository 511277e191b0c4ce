"""What is said of a model that doesn't speak Harmony, and what its chat template is given."""

import msgspec

AUTO, HARMONY = "auto", "harmony"
"""What a model may be said to write besides the markup of a family: whatever its server shows it does, or Harmony."""


SERVER = "server"
"""The family of a model whose prompts its server makes, and whose turns its server reads, by a parser of its own."""


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


class ChatRequest(msgspec.Struct, frozen=True):
    """What a server is asked that makes its prompts itself, and reads its model by a parser of its own.

    `choice` is whether a tool of the transcript's has to be called (`auto`, `none`, `required`), `parallel` whether
    several may be. `form` is the format of the answer, JSON as Chat Completions has it; empty is any.
    """

    transcript: Transcript
    choice: str = "auto"
    parallel: bool = True
    form: bytes = b""

    @property
    def size(self) -> int:
        """How many bytes what is said and shown takes: no fewer than it has tokens, but for what stands around it."""
        return len(self.transcript.messages) + len(self.transcript.tools)
