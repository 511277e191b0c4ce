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
from service.features.trajectories.stories import Item, inner
from service.harmony.calls import pair
from service.harmony.render import PROMPT_END
from service.harmony.tokens import ENDOFTEXT, RETURN, unpack
from service.responses.output.reading import DIGEST_BYTES, PREFIX, READ, SAMPLED, Ids, SampledNote
from service.responses.prompt.build import in_prompt
from store.backup.records import Saved
from store.history.omissions import ROLE as OMISSION
from store.turn import StoredMessage


class TurnGeneration(NamedTuple):
    """One generation of a turn: the places of the output items that it made, and its ids as far as they are known.

    It has a `cut` where its prompt is not the one before with what was sampled behind it: `why`, and that it has the
    first `at` of those `of` ids alone, both null where its ids are not known.
    """

    items: frozenset[int]
    prompt: "Ids | None" = None
    sampled: "Ids | None" = None
    logprobs: list[float] | None = None
    cut: Item | None = None


class TakenTurn(NamedTuple):
    """A turn, its response and its input as JSON has them, and its generations."""

    turn: Saved
    response: Any
    input: list[Item]
    generations: list[TurnGeneration]

    @property
    def output(self) -> list[Item]:
        return list(inner(self.response, "output"))


_Group = tuple[list[StoredMessage], list[StoredMessage]]
"""The messages given before a generation, and those that it sampled."""


def take_turns(turns: Sequence[Saved], *, whole: bool) -> Iterator[TakenTurn]:
    """The turns of a conversation, oldest first. It is `whole` where they begin with its first one."""
    walk = _Walk(known=whole)
    for turn in turns:
        response: Any = msgspec.json.decode(turn.response or b"{}")
        items = msgspec.json.decode(turn.items or b"[]", type=list[Item])
        yield TakenTurn(turn, response, items, walk.generations(turn, response))


class _Walk:
    """The way through a conversation: its messages so far, and the ids that the model had last."""

    def __init__(self, *, known: bool) -> None:
        self._known = known
        """Whether all that stood before is there."""
        self._history: list[tuple[str, int, StoredMessage]] = []
        self._paired = False
        self._prefix: bytes | None = None
        self._before: Ids | None = None

    def generations(self, turn: Saved, response: Any) -> list[TurnGeneration]:
        """The generations of the next turn."""
        notes = {each.role: each for each in turn.messages if not each.tokens}
        if PREFIX in notes:
            self._prefix = b64decode(notes[PREFIX].name or "")
        if OMISSION in notes:
            omits: Any = msgspec.json.decode(notes[OMISSION].name or "")
            gone = {(omits["turn"], place) for place in omits["messages"]}
            self._history = [each for each in self._history if each[:2] not in gone]
        self._known = self._known and turn.erased is None
        self._paired = self._paired or OMISSION in notes or turn.deleted or turn.erased is not None
        made = list(self._generations(response, _groups(turn), notes)) if not turn.deleted else []
        self._history += [(turn.id, place, each) for place, each in enumerate(turn.messages) if each.tokens]
        return made

    def _generations(
        self, response: Any, groups: list[_Group], notes: dict[str, StoredMessage]
    ) -> Iterator[TurnGeneration]:
        note = msgspec.json.decode(notes[SAMPLED].name or "", type=SampledNote) if SAMPLED in notes else None
        sampled = None if note is None or not groups else _sampled_ids(note, groups, notes.get(READ))
        prompts = None if READ in notes or sampled is None else self._prompts(response, groups, sampled)
        logprobs, at = array("f", note.logprobs if note else b"").tolist(), 0
        for place, (_, messages) in enumerate(groups):
            items = frozenset([each.item for each in messages if each.item is not None])
            ids, prompt = sampled[place] if sampled else None, prompts[place] if prompts else None
            known = logprobs[at : at + len(ids)] if logprobs and ids else None
            at += len(ids or ())
            before = self._before or array("I")
            cut: Item | None = {"why": _why(response, notes) if self._known else "erased", "at": None, "of": None}
            if prompt:
                kept = common(before, prompt)
                cut = {"why": "template", "at": kept, "of": len(before)} if kept < len(before) else None
            self._before = prompt + ids if prompt and ids else None
            yield TurnGeneration(items, prompt, ids, known, cut)

    def _prompts(self, response: Any, groups: list[_Group], sampled: list[Ids]) -> list[Ids] | None:
        """The prompts of a turn's generations; None where they aren't those that usage counted."""
        if self._prefix is None or not self._known:
            return None
        history = [message for _, _, message in self._history]
        everything = inner(inner(response, "reasoning"), "context") == "all_turns"
        shown = in_prompt([*(pair(history) if self._paired else history), *groups[0][0]], all_thoughts=everything)
        prompts = [unpack(self._prefix + b"".join([each.tokens for each in shown]) + PROMPT_END)]
        for (given, _), ids in zip(groups[1:], sampled, strict=False):
            prompts.append(prompts[-1] + ids + unpack(b"".join([each.tokens for each in given]) + PROMPT_END))
        return prompts if inner(inner(response, "usage"), "input_tokens") == sum(map(len, prompts)) else None


def _groups(turn: Saved) -> list[_Group]:
    """The messages of a turn, given and sampled in turns: items of the output have numbers below those of the input."""
    groups: list[_Group] = [([], [])]
    for message in filter(lambda each: each.tokens, turn.messages):
        if message.role == "assistant" and message.item is not None and message.item < MAX_OUTPUT_ITEMS:
            groups[-1][1].append(message)
        elif groups[-1][1]:
            groups.append(([message], []))
        else:
            groups[-1][0].append(message)
    return [group for group in groups if group[1]]


def _sampled_ids(note: SampledNote, groups: list[_Group], read: StoredMessage | None) -> list[Ids] | None:
    """The ids of each generation; None where none of those that they may be have the digest.

    The first message of a prompt's answer begins in the prompt, and a message is stored with the mark that closes it in
    later prompts; sampled was another one, one more behind a call, or none where it was broken off.
    """
    if read is not None:
        ids = unpack(sampled_in(read))
        return [ids] if len(groups) == 1 and _digest([ids]) == note.digest else None
    stored = [unpack(b"".join([each.tokens for each in own]).removeprefix(PROMPT_END)) for _, own in groups]
    last, closed = stored[-1][:-1], stored[-1][-1]
    for end in ((closed,), (RETURN,), (), (closed, RETURN), (ENDOFTEXT,), (closed, ENDOFTEXT)):
        found = [*stored[:-1], last + array("I", end)]
        if _digest(found) == note.digest:
            return found
    return None


def _digest(ids: list[Ids]) -> bytes:
    return blake2b(array("q", chain.from_iterable(ids)), digest_size=DIGEST_BYTES).digest()


def _why(response: Any, notes: dict[str, StoredMessage]) -> str:
    """The likeliest reason for which a prompt isn't known."""
    if READ in notes:
        return "template"
    if SAMPLED not in notes:
        return "not noted"
    compacted = any(each["type"] == "compaction" for each in inner(response, "output"))
    return "compaction" if compacted else "truncation" if response.get("truncation") == "auto" else "not as stored"
