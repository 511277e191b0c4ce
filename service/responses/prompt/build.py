"""A request and the chain that it continues, to the tokens that the engine gets and the messages that are new.

    system · developer (this request's instructions, tools and format) · chain · new input · <|start|>assistant

System and developer messages are made afresh for every request and never join a chain. Kept messages are joined as
they stand, so a continued prompt begins with exactly the tokens of the one before it; only analysis before the last
final answer is left out, and what was left out once never comes back on that branch, because a final never leaves
a chain. Building is a generator that yields between pieces of work, so that no prompt stalls the event loop.

`truncation: auto`: which turns of a conversation that is too long a prompt shows.

First the user's words inside a compaction go, then whole turns, the oldest first. A turn begins where the user speaks
(or a developer) after somebody else did. The opening of the conversation (developers' words and a summary) stays; so
does the newest turn; and a call is never parted from its output. Turns left out of one prompt stay in the chain.
"""

from array import array
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import msgspec

from service.api.approving import NO_APPROVALS, Approvals
from service.api.items import CompactionTriggerItem, Gathered, InputItem, LeftOutItem, ReasoningItem
from service.api.outcome import Answers, ApprovalRequest
from service.api.read import resolve
from service.api.request import HARMONY_EFFORT, CreateRequest
from service.errors import InvalidRequest, context_length_exceeded
from service.harmony import render, tokens
from service.harmony.calls import answered_calls, in_order_of_calls
from service.harmony.pictures import with_pictures
from service.harmony.render import PROMPT_END, developer_text, message_steps, system_message
from service.harmony.tokens import BYTES_A_TOKEN, RunTooLong, TooManyTokens
from service.responses.output.compaction import behind_compaction, since_compaction
from service.responses.output.rules import Rules
from service.responses.prompt.compaction import (
    INSTRUCTION,
    PARTLY,
    compacting_first,
    instruction,
    kept_messages,
    threshold,
)
from service.responses.prompt.drafts import Conversion
from service.responses.prompt.read import MAX_ITEMS, Read
from store.turn import Picture, StoredMessage

ANSWER_RESERVE_TOKENS = 4096
"""How much room is made for an answer whose `max_output_tokens` isn't given."""

RESERVE_SHARE = 4
"""At most one part in so many of the context is kept for the answer."""

_PROMPTERS = ("user", "developer")


def reserve(context_tokens: int, max_output_tokens: int | None) -> int:
    """How many tokens of the context a shortened prompt leaves to the answer."""
    return min(max_output_tokens or ANSWER_RESERVE_TOKENS, context_tokens // RESERVE_SHARE)


def drop_oldest(messages: Sequence[StoredMessage], room: int) -> list[StoredMessage]:
    """The messages without so many of the oldest turns that they have at most `room` tokens, if that is enough."""
    excess = sum(len(message.tokens) for message in messages) - room * BYTES_A_TOKEN
    if excess <= 0:
        return list(messages)
    cut = head = _head(messages)
    rest, excess = _without_words(messages[:head], excess)
    dropped = 0
    for place in _cuts(messages, head) if excess > 0 else ():
        dropped += sum(len(message.tokens) for message in messages[cut:place])
        cut = place
        if dropped >= excess:
            break
    return [*rest, *messages[cut:]]


def _without_words(head: Sequence[StoredMessage], excess: int) -> tuple[list[StoredMessage], int]:
    """The head without so many of the oldest words of the user's that it is `excess` bytes shorter, and what of that is
    left. All that a user says in a head stands between a compaction's mark and its summary.
    """
    rest: list[StoredMessage] = []
    for message in head:
        if message.role == "user" and excess > 0:
            excess -= len(message.tokens)
        else:
            rest.append(message)
    return rest, excess


def _head(messages: Sequence[StoredMessage]) -> int:
    """Where the first turn begins."""
    place = behind_compaction(messages)
    while place < len(messages) and messages[place].role == "developer":
        place += 1
    return place


def _cuts(messages: Sequence[StoredMessage], head: int) -> list[int]:
    """The places where a turn begins and no call before waits for an output behind, oldest first."""
    open_until = [0] * (len(messages) + 1)
    for output, call in answered_calls(messages).items():
        open_until[call] = output
    cuts: list[int] = []
    latest = 0
    for place in range(head, len(messages)):
        begins = messages[place].role in _PROMPTERS and place > head and messages[place - 1].role not in _PROMPTERS
        if begins and latest < place:
            cuts.append(place)
        latest = max(latest, open_until[place])
    return cuts


CACHED_DEVELOPER_CHARS = 65_536

SHORTENED_TOKENS = 4_194_304
"""The most tokens of an input that may be shortened or compacted: 16 MB of them."""


MODEL_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
"""The first line of the system message, with which gpt-oss was trained. OpenAI's guide to harmony says to leave it."""


class Prompt(msgspec.Struct, frozen=True):
    """The prompt for the engine, and the parts of the request that a response shows and a turn keeps.

    `messages` are new, and `shown` are those in the prompt, old and new, behind its prefix. `rules` are for the
    maker of the Response. Where it begins with approved calls, their outcomes and `rules.answers.behind` stand behind
    the prompt. `ending` is text that only this prompt has behind them: the instruction of a compaction.
    """

    tokens: "array[int]"
    items: list[InputItem]
    messages: list[StoredMessage]
    shown: list[StoredMessage]
    rules: Rules
    ending: tuple[StoredMessage, ...] = ()
    pictures: tuple[Picture, ...] = ()
    """Those of the new messages."""
    prefix: bytes = b""
    """The ids before the messages of the conversation, packed."""
    partial: bool = False
    """Whether messages of the conversation are not in it: they were left out, or come behind a compaction."""

    @property
    def whole(self) -> "array[int]":
        """All ids of the engine's prompt that are known."""
        if self.rules.answers is None:
            return self.tokens
        return self.tokens + _behind(self.rules.answers)


def build_prompt(
    read: Read,
    request: CreateRequest,
    chain: Sequence[StoredMessage],
    limit: int,
    date: str,
    resolved: Mapping[str, msgspec.Raw] = MappingProxyType({}),
    waiting: Sequence[ApprovalRequest] = (),
    cut_calls: Sequence[StoredMessage] = (),
    *,
    approvals: Approvals = NO_APPROVALS,
    keeps_thoughts: bool = False,
) -> Generator[None, None, Prompt]:
    """Build the prompt of a request that was read, yielding between pieces of a few milliseconds.

    `chain` is oldest first; `limit` is how many tokens the model's context has; `date` is the request's UTC day, such
    as 2025-06-28. `resolved` has the JSON of each stored item that the input refers to, `waiting` are the requests
    for approval in the chain, to which `approvals` read the answers, and `cut_calls` the notes of its calls that were
    cut short. Earlier analysis of a model that `keeps_thoughts` is shown unasked: its chat template decides on it.
    Where the rules are those of a compaction, the prompt is for that instead of an answer: it ends with an instruction,
    which no chain has.

    Raises InvalidRequest: for references to nothing, for call ids without a call, for calls without an output, for
    what can't be opened, and for a prompt that leaves no room.
    """
    items, pictures = read.items, dict(read.pictures)
    if read.references:
        gathered = Gathered(
            *(read.bounds, request.begins_at), pictures=pictures, shown=len(pictures), left_out=read.gathered.left_out
        )
        items = yield from resolve(items, resolved, gathered, max_items=MAX_ITEMS)
    if request.generate and not chain and not read.earlier and all(map(_says_nothing, items)):
        advice = "give at least one item" + (" that can be read." if items else ".")
        raise InvalidRequest(f"'input' is empty: {advice}", code="invalid_value", param="input")
    prefix = [
        system_message(
            identity=MODEL_IDENTITY,
            date=date,
            effort=HARMONY_EFFORT[read.effort],
            namespaces=read.tools.namespaces,
            tools=read.tools.trained,
        )
    ]
    developer = developer_text(
        request.instructions or None, read.tools.section, verbosity=request.verbosity, formats=read.format.section
    )
    bounded = request.truncation == "auto" or request.managing
    room = SHORTENED_TOKENS if bounded else limit
    leaves = None if read.bounds is None else read.gathered.left_out
    conversion = Conversion(
        *(read.rules, read.opener, chain, items, room, waiting, request.begins_at, pictures, cut_calls),
        left_out=leaves,
        approvals=approvals,
    )
    try:
        if len(developer) > CACHED_DEVELOPER_CHARS:
            prefix.append((yield from message_steps(developer, "developer", limit=limit)).tokens)
        elif developer:
            prefix.append(_developer_message(developer))
        new = yield from conversion.messages_of(read.earlier)
    except TooManyTokens:
        raise context_length_exceeded(limit, None) from None
    except RunTooLong as error:
        raise InvalidRequest(f"Invalid text: {error}.", code="invalid_value", param="input") from None
    yield  # here and below, as a history may be long
    messages = in_prompt([*chain, *with_pictures(new)], all_thoughts=keeps_thoughts or request.thoughts == "all_turns")
    rules = msgspec.structs.replace(read.rules, answers=conversion.answers) if conversion.answers else read.rules
    yield
    rules, shown, ending = _fit(request, rules, prefix, messages, limit)
    packed = b"".join((*prefix, *[message.tokens for message in shown], *ending))
    yield
    joined = tokens.unpack(packed)
    yield
    instructed = tuple(StoredMessage("developer", each) for each in ending[:-1])
    partial = len(shown) < len(messages)
    prompt = Prompt(joined, items, new, shown, rules, instructed, prefix=b"".join(prefix), partial=partial)
    if pictures:
        prompt = msgspec.structs.replace(prompt, pictures=tuple(each.picture for each in pictures.values()))
    if len(prompt.whole) >= limit:
        raise context_length_exceeded(limit, len(prompt.whole))
    return prompt


def _behind(answers: Answers) -> "array[int]":
    """The caller's input besides its approvals, and the end of a prompt."""
    return tokens.unpack(b"".join((*(message.tokens for message in answers.behind), PROMPT_END)))


def _fit(
    request: CreateRequest, rules: Rules, prefix: Sequence[bytes], messages: list[StoredMessage], limit: int
) -> tuple[Rules, list[StoredMessage], list[bytes]]:
    """The rules, the messages and the ending of a prompt: of a compaction, of one that comes before the answer, or of
    the answer alone, to which the messages are shortened if the request allows that.
    """
    ending, kept = [PROMPT_END], reserve(limit, request.max_output_tokens)
    if rules.answers is not None:
        if rules.compacting:
            raise InvalidRequest(
                "A compaction makes no call: send 'compaction_trigger' once the approved calls were made.",
                param="input",
            )
        room = limit - kept - len(_behind(rules.answers))
        if request.truncation == "auto":
            messages = drop_oldest(messages, max(room - _length(prefix), 0))
        return rules, messages, []
    if rules.compacting:
        words = kept_messages(messages, _length(prefix), limit, kept)
        rules = msgspec.structs.replace(rules, kept_messages=words)
        ending.insert(0, _developer_message(instruction(messages, words)))
    elif request.managing is not None:
        due = threshold(request.managing.compact_threshold, limit)
        compacting = compacting_first(rules, messages, _length(prefix), limit, kept, due)
        if compacting is not None:
            older = messages[: -len(with_pictures(compacting.newest))]
            words = instruction(older, compacting.kept_messages)
            if request.truncation == "auto":
                instructed = (*prefix, _developer_message(f"{INSTRUCTION}\n\n{PARTLY}"), PROMPT_END)
                older = drop_oldest(older, max(limit - kept - _length(instructed), 0))
            return compacting, older, [_developer_message(words), *ending]
    if request.truncation == "auto":
        room = limit - kept
        messages = drop_oldest(messages, max(room - _length((*prefix, *ending)), 0))
    return rules, messages, ending


def _length(messages: Sequence[bytes]) -> int:
    """How many ids these messages have."""
    return sum(map(len, messages)) // BYTES_A_TOKEN


def _says_nothing(item: InputItem) -> bool:
    if isinstance(item, ReasoningItem):
        return not (item.content or item.summary or item.encrypted_content)
    return isinstance(item, CompactionTriggerItem | LeftOutItem)


def in_prompt(messages: Sequence[StoredMessage], *, all_thoughts: bool = False) -> list[StoredMessage]:
    """Those of a chain's messages that a prompt shows: all since the last compaction, but for the analysis before the
    last final answer; with `all_thoughts`, that too.

    Calls and their outputs stay on whatever channel they are, as tool use suffers without them.
    """
    messages, answered = in_order_of_calls(messages[since_compaction(messages) :]), 0
    if not all_thoughts:
        answered = next((i + 1 for i in range(len(messages) - 1, -1, -1) if _is_final(messages[i])), 0)
    before = [each for each in messages[:answered] if each.channel != "analysis" or each.recipient is not None]
    return [*before, *messages[answered:]]


def _is_final(message: StoredMessage) -> bool:
    """Whether it is a final answer; a model may also call a function on that channel."""
    return message.channel == "final" and message.recipient is None


@lru_cache(maxsize=64)
def _developer_message(text: str) -> bytes:
    """Instructions and tools repeat from request to request, so short ones are encoded once."""
    return render.message(text, "developer").tokens
