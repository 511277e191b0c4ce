"""Messages as Harmony tokens: prompts are joined from them, and the store keeps them.

A prompt is the concatenation of its messages' tokens and PROMPT_END, so each message is rendered once, when
it is new, and kept as packed ids. Only the system and developer messages are made afresh for every request.

The ids equal those of openai-harmony; tests hold the two together. Never let text become a special id: those
are placed here by name, and all text from outside passes `encode`, which knows none.
"""

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Literal, TypedDict, Unpack

from service.harmony.tokens import ASSISTANT, CALL, CHANNEL, CONSTRAIN, END, MESSAGE, START, encode, encode_steps, pack
from store.turn import StoredMessage

PROMPT_END: bytes = pack((START, ASSISTANT))
"""The end of a prompt: the model goes on with the header of an assistant message."""

HEADER_CACHE_CHARS = 128
"""Names and recipients come from clients, so longer headers than this aren't worth a place in the cache."""

SYSTEM_CACHE_ENTRIES = 64
"""A day has six of an identity: one for each effort, with and without functions. Clients' namespaces, and tools that
the model was trained with, add to them."""

Verbosity = Literal["low", "medium", "high"]
VERBOSITY = {
    "low": "Keep the final answer short: say what was asked for, and nothing else.",
    "high": "Make the final answer long and thorough: explain it, with details and examples.",
}
"""The developer message's words on the final answer's length. gpt-oss has no switch for it; it reads words."""

_CONSTRAIN_TEXT = "<|constrain|>"


class HeaderParts(TypedDict, total=False):
    """The optional parts of a message's header. The caller has checked that they are well-formed."""

    name: str | None
    recipient: str | None
    channel: str | None
    content_type: str | None


# --- one message --------------------------------------------------------------------------------------------


def open_message(
    role: str,
    *,
    name: str | None = None,
    recipient: str | None = None,
    channel: str | None = None,
    content_type: str | None = None,
) -> tuple[int, ...]:
    """The ids of a header, START and MESSAGE included.

    A tool is known by its `name` alone, which it must have. A `content_type` may begin with "<|constrain|>",
    the one part that becomes a special id. Raises ValueError for a tool without name.
    """
    size = sum(len(part) for part in (role, name, recipient, channel, content_type) if part)
    header = _cached_header if size <= HEADER_CACHE_CHARS else _header
    return header(role, name, recipient, channel, content_type)


def close_id(role: str, recipient: str | None) -> int:
    """The id that ends a message: CALL where an assistant addresses someone, else END."""
    return CALL if role == "assistant" and recipient is not None else END


def frame(
    content: Sequence[int], role: str, *, call_id: str | None = None, **header: Unpack[HeaderParts]
) -> StoredMessage:
    """A message from the ids of its content. `call_id` is kept beside it and never rendered."""
    head, closing = open_message(role, **header), close_id(role, header.get("recipient"))
    return StoredMessage(role=role, tokens=pack(head) + pack(content) + pack((closing,)), call_id=call_id, **header)


def message(text: str, role: str, *, call_id: str | None = None, **header: Unpack[HeaderParts]) -> StoredMessage:
    """A message from a text that is known to be short; for any other see `message_steps`."""
    return frame(encode(text), role, call_id=call_id, **header)


def message_steps(
    text: str, role: str, *, limit: int, call_id: str | None = None, **header: Unpack[HeaderParts]
) -> Generator[None, None, StoredMessage]:
    """A message from a text of any length, yielding between slices so that the caller can let others run.

    `limit` is the most ids that the text may have. Raises TooManyTokens past it.
    """
    content = yield from encode_steps(text, limit)
    return frame(content, role, call_id=call_id, **header)


def _header(
    role: str, name: str | None, recipient: str | None, channel: str | None, content_type: str | None
) -> tuple[int, ...]:
    """The ids of a header. Each part is encoded alone: a name that ends in spaces would merge with the next part."""
    ids = [START, *_author(role, name)]
    if recipient is not None and recipient != "all":
        ids += encode(f" to={recipient}")
    if channel is not None:
        ids += [CHANNEL, *encode(channel)]
    if content_type is not None and content_type.startswith(_CONSTRAIN_TEXT):
        ids += [*encode(" "), CONSTRAIN, *encode(content_type.removeprefix(_CONSTRAIN_TEXT))]
    elif content_type is not None:
        ids += encode(f" {content_type}")
    return (*ids, MESSAGE)


_cached_header = lru_cache(1024)(_header)


def _author(role: str, name: str | None) -> list[int]:
    if role == "tool":
        if name is None:
            raise ValueError("a tool's message needs the tool's name")
        return encode(name)
    return encode(role if name is None else f"{role}:{name}")


# --- the beginning of every prompt --------------------------------------------------------------------------


KNOWLEDGE_CUTOFF = "2024-06"
"""The month that gpt-oss was trained with in its system message."""


@lru_cache(SYSTEM_CACHE_ENTRIES)
def system_message(
    *,
    identity: str,
    date: str,
    effort: str,
    namespaces: tuple[str, ...] = (),
    tools: str = "",
) -> bytes:
    """The packed ids of the system message.

    `identity` is a sentence ("You are …"), `date` the day of the request (2025-06-28), `effort` low, medium or high.
    `namespaces` are those of the developer message's tools: they add where to call them. openai-harmony names
    `functions` alone there, beside any other namespaces. `tools` is the section of those that the model was trained
    with.
    """
    channels = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
    if namespaces:
        named = ", ".join(f"'{name}'" for name in namespaces)
        channels += f"\nCalls to these tools must go to the commentary channel: {named}."
    model = f"{identity}\nKnowledge cutoff: {KNOWLEDGE_CUTOFF}\nCurrent date: {date}"
    sections = (model, f"Reasoning: {effort}", *(("# Tools", tools) if tools else ()), channels)
    return message("\n\n".join(sections), "system").tokens


def developer_text(
    instructions: str | None, tools: str = "", *, verbosity: Verbosity = "medium", formats: str = ""
) -> str:
    """The text of a developer message: instructions, how long to answer, the section of the tools, and `formats`, the
    section of the answer's format with its heading; "" where there is none of them.

    Only None means no instructions: an empty text still has its heading, as in openai-harmony. A medium verbosity is
    the model's own.
    """
    sections: list[str] = []
    if instructions is not None:
        sections += ["# Instructions", instructions]
    if verbosity != "medium":
        sections += ["# Verbosity", VERBOSITY[verbosity]]
    if tools:
        sections += ["# Tools", tools]
    if formats:
        sections.append(formats)
    return "\n\n".join(sections)
