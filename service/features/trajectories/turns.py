"""The turns of a conversation, each with the generations that made it: the exact ids that the model read and sampled.

The store has a conversation's messages as ids, and with HARMONIUM_TRAJECTORIES notes the rest: the ids before them
(PREFIX), and a digest of what was sampled (SAMPLED), as a message ends otherwise than it was sampled. Here both are put
together again. Ids that don't have that digest, and prompts whose lengths aren't those that usage counted, are not
shown: a template has written them, a truncation or a compaction has cut them, or nobody noted them.
"""

from array import array
from base64 import b64decode
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from service.api.ids import MAX_OUTPUT_ITEMS
from service.features.models.known_ids import common, sampled_in
from service.harmony.calls import pair
from service.harmony.render import PROMPT_END
from service.harmony.tokens import ENDOFTEXT, RETURN, unpack
from service.responses.output.reading import DIGEST_BYTES, PREFIX, READ, SAMPLED, Ids, SampledNote
from service.responses.prompt.build import in_prompt
from store.backup.records import Saved
from store.history.omissions import ROLE as OMISSION
from store.turn import Messages, StoredMessage

Item = dict[str, Any]

_NOTE = msgspec.json.Decoder(SampledNote)


class Cut(msgspec.Struct, frozen=True):
    """A prompt that isn't the one before with what was sampled behind it: it has only the first `at` of those `of` ids,
    as far as that is known, and `why`.
    """

    why: str
    at: int | None = None
    of: int | None = None


class Generated(NamedTuple):
    """One generation of a turn: its ids, as far as they are known, and the places of the output items that it made."""

    items: frozenset[int]
    prompt: "Ids | None" = None
    sampled: "Ids | None" = None
    logprobs: list[float] | None = None
    cut: Cut | None = None


class _Cached(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class CountedTokens(msgspec.Struct, frozen=True):
    """The usage of a response."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached = _Cached()


class _Reasoning(msgspec.Struct, frozen=True):
    context: str | None = None


class TrainedResponse(msgspec.Struct, frozen=True):
    """A response, as far as it matters here."""

    model: str | None = None
    output: list[Item] = []
    tools: list[Item] = []
    usage: CountedTokens | None = None
    reasoning: _Reasoning | None = None
    truncation: str | None = None

    @property
    def counted(self) -> CountedTokens:
        return self.usage or CountedTokens()


class TakenTurn(NamedTuple):
    """A turn, its response, its input, and its generations."""

    turn: Saved
    response: TrainedResponse
    input: list[Item]
    generations: list[Generated]


def taken(turns: Sequence[Saved], *, whole: bool = True) -> Iterator[TakenTurn]:
    """The turns of a conversation, oldest first. It is `whole` where they begin with its first one."""
    walk = _Walk(known=whole)
    for turn in turns:
        response = msgspec.json.decode(turn.response or b"{}", type=TrainedResponse)
        items = msgspec.json.decode(turn.items or b"[]", type=list[Item])
        yield TakenTurn(turn, response, items, walk.generations(turn, response))


class _Group(NamedTuple):
    """What was given before a generation, and what it sampled."""

    given: list[StoredMessage]
    sampled: list[StoredMessage]

    @property
    def items(self) -> frozenset[int]:
        return frozenset(each.item for each in self.sampled if each.item is not None)


class _Walk:
    """The way through a conversation: its messages so far, and the ids that the model had last."""

    def __init__(self, *, known: bool) -> None:
        self._known = known
        """Whether all that stood before is there."""
        self._history: list[tuple[str, int, StoredMessage]] = []
        self._paired = False
        self._prefix: bytes | None = None
        self._before: Ids | None = None

    def generations(self, turn: Saved, response: TrainedResponse) -> list[Generated]:
        """The generations of the next turn."""
        notes = {each.role: each.name or "" for each in turn.messages if not each.tokens}
        if PREFIX in notes:
            self._prefix = b64decode(notes[PREFIX])
        if OMISSION in notes:
            self._omit(msgspec.json.decode(notes[OMISSION]))
        if turn.erased or turn.deleted:
            self._known, self._paired = self._known and not turn.erased, True
        groups = _groups(turn.messages)
        made = [] if turn.deleted or not groups else self._generations(turn, response, groups, notes)
        self._history += [(turn.id, place, each) for place, each in enumerate(turn.messages) if each.tokens]
        return made

    def _omit(self, omits: dict[str, Any]) -> None:
        """Go on without some messages of an earlier turn."""
        gone = {(omits["turn"], place) for place in omits["messages"]}
        self._history = [each for each in self._history if each[:2] not in gone]
        self._paired = True

    def _generations(
        self, turn: Saved, response: TrainedResponse, groups: list[_Group], notes: dict[str, str]
    ) -> list[Generated]:
        note = _NOTE.decode(notes[SAMPLED]) if SAMPLED in notes else None
        read = [each for each in turn.messages if each.role == READ]
        sampled = None if note is None else _sampled(note, groups, read)
        prompts = None if read or sampled is None else self._prompts(response, groups, sampled)
        logprobs = array("f", note.logprobs if note else b"").tolist() or None
        made, at = list[Generated](), 0
        for place, group in enumerate(groups):
            ids = None if sampled is None else sampled[place]
            prompt = None if prompts is None else prompts[place]
            known = None if logprobs is None or ids is None else logprobs[at : at + len(ids)]
            at += 0 if ids is None else len(ids)
            cut = self._cut(prompt, _why(response, notes, template=bool(read)))
            self._before = None if prompt is None or ids is None else prompt + ids
            made.append(Generated(group.items, prompt, ids, known, cut))
        return made

    def _prompts(self, response: TrainedResponse, groups: list[_Group], sampled: list[Ids]) -> "list[Ids] | None":
        """The prompts of a turn's generations; None where they aren't those that usage counted."""
        if self._prefix is None or not self._known:
            return None
        history = [message for _, _, message in self._history]
        shown = [*(pair(history) if self._paired else history), *groups[0].given]
        all_thoughts = response.reasoning is not None and response.reasoning.context == "all_turns"
        shown = in_prompt(shown, all_thoughts=all_thoughts)
        prompts = [unpack(self._prefix + b"".join([each.tokens for each in shown]) + PROMPT_END)]
        for group, ids in zip(groups[1:], sampled, strict=False):
            given = unpack(b"".join([each.tokens for each in group.given]) + PROMPT_END)
            prompts.append(prompts[-1] + ids + given)
        return prompts if response.counted.input_tokens == sum(map(len, prompts)) else None

    def _cut(self, prompt: "Ids | None", why: str) -> Cut | None:
        """The cut of a prompt, None where it goes on from the one before."""
        if prompt is None:
            return Cut(why if self._known else "erased")
        if self._before is None:
            return None
        at = common(self._before, prompt)
        return None if at == len(self._before) else Cut("template", at, len(self._before))


def _groups(messages: Messages) -> list[_Group]:
    """What was given and what was sampled, by turns: an item of the output has a number below those of the input."""
    groups = [_Group([], [])]
    for message in messages:
        if not message.tokens:
            continue
        if message.role == "assistant" and message.item is not None and message.item < MAX_OUTPUT_ITEMS:
            groups[-1].sampled.append(message)
        elif groups[-1].sampled:
            groups.append(_Group([message], []))
        else:
            groups[-1].given.append(message)
    return [group for group in groups if group.sampled]


def _sampled(note: SampledNote, groups: list[_Group], read: list[StoredMessage]) -> "list[Ids] | None":
    """The ids of each generation; None where none of those that they may be have the digest.

    The first message of a prompt's answer begins in the prompt, and a message is stored with the mark that closes it in
    later prompts; sampled was another one, one more behind a call, or none where it was broken off.
    """
    if read:
        ids = unpack(sampled_in(read[-1]))
        return [ids] if len(groups) == 1 and _digest([ids]) == note.digest else None
    stored = [unpack(b"".join([each.tokens for each in group.sampled]).removeprefix(PROMPT_END)) for group in groups]
    last, closed = stored[-1][:-1], stored[-1][-1]
    for end in ((closed,), (RETURN,), (), (closed, RETURN), (ENDOFTEXT,), (closed, ENDOFTEXT)):
        ids = [*stored[:-1], last + array("I", end)]
        if _digest(ids) == note.digest:
            return ids
    return None


def _digest(ids: list[Ids]) -> bytes:
    return blake2b(array("q", chain.from_iterable(ids)), digest_size=DIGEST_BYTES).digest()


def _why(response: TrainedResponse, notes: dict[str, str], *, template: bool) -> str:
    """The likeliest reason for which a prompt isn't known."""
    if template:
        return "template"
    if SAMPLED not in notes:
        return "not noted"
    if any(each.get("type") == "compaction" for each in response.output):
        return "compaction"
    return "truncation" if response.truncation == "auto" else "not as stored"
