"""`context_management`: when a prompt is over its threshold, and which part of it is compacted before it is answered.

    prefix · older · newest          longer than the threshold
    prefix · older · instruction     makes the compaction
    prefix · compaction · newest     is answered

The newest input is all messages since the model spoke last. A tool's output is never parted from its call, nor the
call from the thoughts right before it. Of what is older, the user's words stay as they are, but for the oldest where
there is no room for all, and a summary stands for the rest; so there is something to compact where the model has
spoken since the last compaction.

The instruction to the model is a developer message at the end of the prompt, which no later prompt has:

    conversation · instruction ─▶ one answer, the summary ─▶ compaction item, sealed with the user's words in it

output/compaction.py says how later prompts show a compaction.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from service.api import ids
from service.api.items import CompactionItem, InputItem, MessageItem
from service.api.request import CreateRequest, read_create
from service.api.response import Compaction, Usage
from service.decoding import ABSENT, decode
from service.harmony.calls import answered_calls
from service.harmony.messages import text_of
from service.harmony.pictures import with_notes
from service.harmony.render import PROMPT_END, developer_text
from service.harmony.tokens import BYTES_A_TOKEN
from service.responses.output.compaction import behind_compaction, is_marker, is_summary, users_words
from service.responses.output.rules import AfterCompaction, Rules
from service.responses.output.sealed import MAX_KEPT_BYTES, size_of
from store.turn import StoredMessage

WORDS_SHARE = 2
"""The user's words that a compaction keeps take, with the answer behind it, one part in so many of the context, and one
part in so many of the threshold."""

LEAST_WORDS_TOKENS = 256
"""So much of them is kept however low the threshold is."""

WORTH_SHARE = 8
"""A summary replaces at least one part in so many of the threshold: where the user's own words are nearly all
there is, nothing is compacted again and again for nothing."""


def threshold(wanted: int | None, context_tokens: int) -> int:
    """How long a prompt may be before it is compacted: never so long that it can't be answered as it is, and three
    quarters of the context where its request names no threshold.
    """
    return context_tokens * 3 // 4 if wanted is None else min(wanted, context_tokens - 1)


def newest_input(messages: Sequence[StoredMessage]) -> int:
    """Where the newest input begins; 0 where nothing that could be compacted stands before it."""
    place = len(messages)
    while place and messages[place - 1].role == "assistant":
        place -= 1
    while place and messages[place - 1].role != "assistant":
        place -= 1
    place = _with_calls(messages, place)
    return place if any(message.role == "assistant" for message in messages[behind_compaction(messages) : place]) else 0


def _with_calls(messages: Sequence[StoredMessage], place: int) -> int:
    """Where all that belongs to the messages from `place` on begins: the calls that they answer, and the thoughts
    right before those.
    """
    called = answered_calls(messages)
    for at in range(len(messages) - 1, -1, -1):
        if at < place:
            break
        place = min(place, called.get(at, at))
    if place < len(messages) and messages[place].role == "assistant":
        while place and _is_thought(messages[place - 1]):
            place -= 1
    return place


def _is_thought(message: StoredMessage) -> bool:
    return message.role == "assistant" and message.channel == "analysis" and message.recipient is None


def kept_messages(
    messages: Sequence[StoredMessage],
    prefix_tokens: int,
    context_tokens: int,
    reserve: int,
    newest: Sequence[StoredMessage] = (),
    due: int | None = None,
) -> tuple[StoredMessage, ...]:
    """The user's words that a compaction of these messages keeps: the newest with which there is still room for a
    prompt that opens with `prefix_tokens` ids and ends with the `newest` messages, for a summary, and for an answer,
    and which leave that prompt well below the length at which it is `due` again.
    """
    room = context_tokens - prefix_tokens - _tokens_of(newest) - 2 * reserve
    room = min(room, context_tokens // WORDS_SHARE - reserve)
    if due is not None:
        room = min(room, max(due // WORDS_SHARE, LEAST_WORDS_TOKENS))
    return users_words(messages, room, MAX_KEPT_BYTES - sum(map(size_of, newest)))


def compacting_first(
    rules: Rules, messages: Sequence[StoredMessage], prefix_tokens: int, context_tokens: int, reserve: int, due: int
) -> Rules | None:
    """The rules of a response that compacts what is older than the newest input before it answers, as its prompt is
    longer than `due`. The prompt opens with `prefix_tokens` ids. None where there is nothing older, where no room would
    be left for a summary and an answer behind the messages that stay as they are, and where too little of what is
    older goes for its summary to be worth it, though the prompt could be answered as it is.
    """
    size = prefix_tokens + _tokens_of(messages) + len(PROMPT_END) // BYTES_A_TOKEN
    place = newest_input(messages) if size > due else 0
    if not place:
        return None
    older, newest = messages[:place], tuple(messages[place:])
    words = kept_messages(older, prefix_tokens, context_tokens, reserve, newest, due)
    stays = (*words, *newest)
    if sum(map(size_of, stays)) > MAX_KEPT_BYTES or prefix_tokens + _tokens_of(stays) + 2 * reserve > context_tokens:
        return None
    summarized = [each for each in older if not is_marker(each) and not is_summary(each)]
    if size < context_tokens and _tokens_of(summarized) - _tokens_of(words) < due // WORTH_SHARE:
        return None
    after = AfterCompaction(prefix_tokens, with_notes(newest), context_tokens)
    return msgspec.structs.replace(rules, kept_messages=words, after_compaction=after)


def _tokens_of(messages: Sequence[StoredMessage]) -> int:
    return sum(len(message.tokens) for message in messages) // BYTES_A_TOKEN


INSTRUCTION = developer_text(
    "Write a summary of the conversation above, from which it will be continued: whoever goes on sees the user's own "
    "messages and this summary, and nothing else. Keep every fact, name, number, decision, preference and "
    "instruction that may matter later, what was tried and what came of it, what tools returned as far as it is still "
    "needed, and what is still to be done. Leave out pleasantries and whatever the user's messages say already. Don't "
    "call any tool, don't go on with the conversation, and don't answer its last message: answer with the summary "
    "alone, as plain text."
)
"""The instruction behind a conversation that is to be compacted."""

PARTLY = (
    "There is no room for all of the user's messages, and only the newest are kept. So write down too what the earlier "
    "ones say that may matter later."
)
"""The addition where the compaction doesn't keep all of the user's words."""

TRIGGER = b'{"type":"compaction_trigger"}'


class CompactBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/responses/compact`; the members are those of a create request."""

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
    """The answer of `POST /v1/responses/compact`: send it unchanged as the input of the next request.

    `output` has the user's messages, and the compaction item behind them.
    """

    id: str
    created_at: int
    output: list[Any]
    usage: Usage | None
    object: Literal["response.compaction"] = "response.compaction"


def read_compact(body: bytes, *, store: bool) -> CreateRequest:
    """Check the body of a request to compact, and make it one for a response that does. Raises ApiError."""
    wanted = read_create(msgspec.json.encode(decode(body, CompactBody)), store=store)
    return msgspec.structs.replace(wanted, input=with_trigger(wanted.input), store=False)


def with_trigger(sent: msgspec.Raw) -> msgspec.Raw:
    """An input with a trigger behind its items. A value that is no input stays for its reader to refuse."""
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
    """The items that replace the conversation: the user's messages, oldest first, and the compaction.

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
