"""openai-harmony, the judge of what we render: the model was trained on its output.

It lives in tests and benches only. Never hand it untrusted or long text: its BPE is quadratic on long runs,
and some texts end in a panic that `except Exception` lets through. Its vocabulary is the one file that
bpe-openai carries too.
"""

import gzip
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    RenderOptions,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    ToolNamespaceConfig,
    load_harmony_encoding,
)

from service.harmony.render import KNOWLEDGE_CUTOFF
from service.harmony.typescript import Function

VOCABULARY = "o200k_base.tiktoken"
VOCABULARY_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


@dataclass(frozen=True)
class Said:
    """A message as a test writes it: who says what, and the header fields beyond the role."""

    role: str
    text: str
    header: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def for_harmony(self) -> Message:
        return Message(
            author=Author(role=Role(self.role), name=self.header.get("name")),
            content=[TextContent(text=self.text)],
            channel=self.header.get("channel"),
            recipient=self.header.get("recipient"),
            content_type=self.header.get("content_type"),
        )


class Oracle:
    """What openai-harmony renders, in the terms of our renderer. `encoding` is the thing itself."""

    def __init__(self, folder: Path) -> None:
        """Unpack the vocabulary into `folder` and load it: about 0.2 s, so do it once per process."""
        package = find_spec("bpe_openai")  # to import it reads the ranks of three vocabularies
        assert package is not None
        assert package.origin is not None
        vocabulary = gzip.decompress((Path(package.origin).parent / "data" / f"{VOCABULARY}.gz").read_bytes())
        assert hashlib.sha256(vocabulary).hexdigest() == VOCABULARY_SHA256
        (folder / VOCABULARY).write_bytes(vocabulary)
        with patch.dict(os.environ, TIKTOKEN_ENCODINGS_BASE=str(folder)):
            self.encoding: HarmonyEncoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

    def bytes_of(self, rank: int) -> bytes:
        """The bytes of one ordinary id, which alone may be no UTF-8."""
        return bytes(self.encoding._inner.decode_bytes([rank]))

    def message(self, said: Said) -> list[int]:
        return self.encoding.render(said.for_harmony())

    def prompt(self, conversation: Iterable[Said]) -> list[int]:
        """The ids of a whole conversation, analysis and all, up to where the model goes on."""
        messages = [said.for_harmony() for said in conversation]
        return self.encoding.render_conversation_for_completion(
            Conversation(messages=messages), Role.ASSISTANT, RenderConversationConfig(auto_drop_analysis=False)
        )

    def system_message(
        self,
        *,
        identity: str,
        date: str,
        effort: str,
        has_functions: bool,
        builtins: Sequence[str] = (),
    ) -> list[int]:
        """The ids of a system message, with the sections of `builtins`, of python and browser."""
        content = SystemContent(
            model_identity=identity,
            knowledge_cutoff=KNOWLEDGE_CUTOFF,
            conversation_start_date=date,
            reasoning_effort=ReasoningEffort(effort.capitalize()),
        )
        if "python" in builtins:
            content.with_python_tool()
        if "browser" in builtins:
            content.with_browser_tool()
        return self.encoding.render(
            Message.from_role_and_content(Role.SYSTEM, content),
            RenderOptions(conversation_has_function_tools=has_functions),
        )

    def developer_message(self, instructions: str | None, functions: Sequence[Function]) -> list[int]:
        content = DeveloperContent(instructions=instructions)
        if functions:
            content.with_function_tools(_described(functions))
        return self.encoding.render(Message.from_role_and_content(Role.DEVELOPER, content))

    def namespace(self, name: str, functions: Sequence[Function], description: str | None = None) -> str:
        """The text of one section of the tools, without the heading above it."""
        config = ToolNamespaceConfig(name=name, description=description, tools=_described(functions))
        message = Message.from_role_and_content(Role.DEVELOPER, DeveloperContent().with_tools(config))
        _start, _role, _message, *content, _end = self.encoding.render(message)
        return self.encoding.decode_utf8(content).removeprefix("# Tools\n\n")


def _described(functions: Sequence[Function]) -> list[ToolDescription]:
    return [
        ToolDescription(
            name=function.name,
            description=function.description,
            parameters=None if function.parameters is None else dict(function.parameters),
        )
        for function in functions
    ]
