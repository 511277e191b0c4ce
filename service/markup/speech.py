"""The facts about a model that doesn't speak Harmony, and the input of its chat template."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

AUTO, HARMONY = "auto", "harmony"
"""Settings for a model's markup besides the families: the one that its server shows, or Harmony."""


SERVER = "server"
"""The family of a model whose prompts its server makes, and whose turns its server reads, by a parser of its own."""


class ShownTools(msgspec.Struct, frozen=True):
    """The parts of tools that a chat template shows: the tools, the calls, and their outputs."""

    tools: bool = True
    calls: bool = True
    outputs: bool = True


SHOWN = ShownTools()
"""All parts, as in templates of models that were trained with tools."""


class Speech(msgspec.Struct, frozen=True):
    """How a model speaks that doesn't speak Harmony: by its own chat template, and with the markup of its family.

    `marks` are the marks that are one id in its vocabulary, with their ids, and `ends` the ids that end its turn.
    A conversation without a system message gets an empty one if `empty_system`, as its template would add a worse one.
    `shown` are the parts of tools that its template shows, and `sees` is whether it is shown pictures: by its server's
    prompts, or by prompts of ids, in which `mark` stands for one.
    """

    family: str
    marks: tuple[tuple[str, int], ...] = ()
    ends: tuple[int, ...] = ()
    empty_system: bool = False
    shown: ShownTools = SHOWN
    sees: bool = False
    mark: tuple[int, ...] = ()


def usual_options(effort: str) -> dict[str, object]:
    """The options of a template about an effort of reasoning; each template takes those that it knows."""
    return {"enable_thinking": effort != "none", "thinking": effort != "none", "reasoning_effort": effort}


class Transcript(msgspec.Struct, frozen=True):
    """The input from which a model's chat template makes a prompt, all of it JSON in the form of Chat Completions:
    messages, tools, and the template's own options. The assistant speaks next. Where `own` stands in a text, in JSON
    too, it stands in one of our marks: nobody else can know it. The template never gets it.
    """

    messages: bytes
    tools: bytes = b"[]"
    options: bytes = b"{}"
    own: str = ""


class ChatRequest(msgspec.Struct, frozen=True):
    """A request to a server that makes its prompts itself, and reads its model by a parser of its own.

    `choice` is whether a tool of the transcript's has to be called (`auto`, `none`, `required`), `parallel` whether
    several may be. `form` is the format of the answer, JSON as Chat Completions has it; empty is any. `pictures` are
    the data URLs of the pictures to which the messages refer, by their digests in hex.
    """

    transcript: Transcript
    choice: str = "auto"
    parallel: bool = True
    form: bytes = b""
    pictures: Mapping[bytes, bytes] = MappingProxyType({})

    @property
    def size(self) -> int:
        """The bytes of its messages and tools: no fewer than their tokens, but for the template's own text and
        pictures.
        """
        return len(self.transcript.messages) + len(self.transcript.tools)
