"""Compacting: the instruction to the model, and the window that `/responses/compact` answers with.

    conversation · instruction ─▶ one answer, the summary ─▶ compaction item, sealed with the user's words in it

The instruction is a developer message at the end of the prompt, which no later prompt has. How those show a compaction
is said in messages.py.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from service.api import ids
from service.api.decoding import ABSENT, decode, decoder_of
from service.api.input.items import CompactionItem, InputItem, MessageItem
from service.api.request import CreateRequest, read_create
from service.api.response import Compaction, Usage
from service.harmony.messages import text_of
from service.harmony.render import developer_text
from store.turn import StoredMessage

INSTRUCTION = developer_text(
    "Write a summary of the conversation above, from which it will be continued: whoever goes on sees the user's own "
    "messages and this summary, and nothing else. Keep every fact, name, number, decision, preference and "
    "instruction that may matter later, what was tried and what came of it, what tools returned as far as it is still "
    "needed, and what is still to be done. Leave out pleasantries and whatever the user's messages say already. Don't "
    "call any tool, don't go on with the conversation, and don't answer its last message: answer with the summary "
    "alone, as plain text."
)
"""What stands behind a conversation that is to be compacted."""

PARTLY = (
    "There is no room for all of the user's messages, and only the newest are kept. So write down too what the earlier "
    "ones say that may matter later."
)
"""What is added where the compaction doesn't keep all of the user's words."""

TRIGGER = b'{"type":"compaction_trigger"}'


class CompactBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/responses/compact` as sent; each member is read as the one of a create request."""

    model: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT
    instructions: msgspec.Raw = ABSENT
    previous_response_id: msgspec.Raw = ABSENT
    prompt_cache_key: msgspec.Raw = ABSENT
    prompt_cache_options: msgspec.Raw = ABSENT
    prompt_cache_retention: msgspec.Raw = ABSENT
    service_tier: msgspec.Raw = ABSENT
    truncation: msgspec.Raw = ABSENT
    image: msgspec.Raw = ABSENT


class Compacted(msgspec.Struct):
    """What `POST /v1/responses/compact` answers: what a new conversation begins with, as it is.

    `output` has the user's messages, and the compaction item behind them.
    """

    id: str
    created_at: int
    output: list[Any]
    usage: Usage | None
    object: Literal["response.compaction"] = "response.compaction"


_BODY = decoder_of(CompactBody)


def read_compact(body: bytes, *, store: bool) -> CreateRequest:
    """Check the body of a request to compact, and make it one for a response that does. Raises ApiError."""
    wanted = read_create(msgspec.json.encode(decode(body, _BODY)), store=store)
    return msgspec.structs.replace(wanted, input=triggered(wanted.input), store=False)


def triggered(sent: msgspec.Raw) -> msgspec.Raw:
    """An input with a trigger behind its items. Whatever is no input is left to whoever reads it."""
    given = bytes(sent).strip()
    if given == b"null":
        return msgspec.Raw(b"[%b]" % TRIGGER)
    if given.startswith(b'"'):
        return msgspec.Raw(b'[{"type":"message","role":"user","content":%b},%b]' % (given, TRIGGER))
    if given.startswith(b"["):
        items = given[1:-1].strip()
        return msgspec.Raw(b"[%b%b%b]" % (items, b"," if items else b"", TRIGGER))
    return sent


def instruction(messages: Sequence[StoredMessage], kept: Sequence[StoredMessage]) -> str:
    """The instruction for a compaction of these messages, of which `kept` are kept word by word."""
    said = sum(message.role == "user" for message in messages)
    return INSTRUCTION if len(kept) == said else f"{INSTRUCTION}\n\n{PARTLY}"


def window(
    response_id: str, items: Sequence[InputItem], kept: Sequence[StoredMessage], compaction: Compaction
) -> list[InputItem | Compaction]:
    """What stands for the conversation: the user's messages, oldest first, and the compaction.

    `kept` are those that it keeps. The request's own among them are shown as they were sent; the others, which
    came before, as their texts.
    """
    own = _own(items)[-len(kept) :] if kept else []
    before = kept[: len(kept) - len(own)]
    return [
        *(
            MessageItem(
                id=ids.input_item_id(response_id, "message", len(items) + place),
                role="user",
                content=[{"type": "input_text", "text": text_of(message)}],
            )
            for place, message in enumerate(before)
        ),
        *own,
        compaction,
    ]


def _own(items: Sequence[InputItem]) -> list[MessageItem]:
    """The user's messages behind the last compaction among the items: those before it travel in that already."""
    own: list[MessageItem] = []
    for item in items:
        if isinstance(item, CompactionItem):
            own = []
        elif isinstance(item, MessageItem) and item.role == "user":
            own.append(item)
    return own
