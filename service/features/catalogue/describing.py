"""Describing: what the row of a tree shows, and by which facts and words the tree is found."""

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from service.features.catalogue.excerpts import ITEMS, Excerpt, ReadableResponse, excerpt_of, texts_of
from store.backup.records import Saved
from store.catalogue.cataloguing import TreeToDescribe
from store.catalogue.rows import CatalogueRow, fact_of
from store.keys import digits_of

STATUS, MODEL, METADATA, PERSON = "status", "model", "metadata", "person"
"""The kinds of facts: of the newest turn, of any turn, a pair of any turn, and the person that any turn names."""

MOST_FACTS = 200
WORDS_CHARS = 1 << 16
"""How many facts and how much text of a tree are looked for at most."""

_UNREADABLE = ValueError, RecursionError
"""The errors for JSON that isn't as expected, of which msgspec's are ValueErrors."""


class KeptNewest(msgspec.Struct, frozen=True):
    """The newest turn of a tree in the catalogue, and its excerpt."""

    id: str
    status: str
    created: int
    excerpt: Excerpt | None


class KeptSummary(msgspec.Struct, frozen=True):
    """A tree in the catalogue, as the store keeps it in a row without reading it."""

    title: str | None
    begun: int
    turns: int
    conversation: str | None
    newest: KeptNewest


_encoder = msgspec.json.Encoder()
_summaries = msgspec.json.Decoder(KeptSummary)


def summary_in(shown: bytes) -> KeptSummary:
    """The summary in a row."""
    return _summaries.decode(shown)


def describe(kept: TreeToDescribe, *, all_words: bool) -> CatalogueRow:
    """The row of a tree; with `all_words` it is found by all that was said in it, else by its title, the newest answer
    and its metadata: never by an item that was deleted from a conversation in it.
    """
    turns = {turn.id: turn for turn in kept.turns}
    last, omitted = turns[kept.newest], frozenset(filter(None, map(_omitted_by, kept.turns)))
    newest, openings = _excerpt_of(last, omitted), [_excerpt_of(turns[id], omitted) for id in kept.opening]
    title = next((each.input for each in openings if each and each.input), None)
    shown = KeptNewest(last.id, last.status, last.created, newest)
    summary = KeptSummary(title, kept.begun, kept.number, kept.conversation, shown)
    told = [each for turn in kept.turns for each in _facts_of(turn)]
    told.sort(key=lambda each: each[0] != PERSON)  # people first, as there may not be room for all
    facts = dict.fromkeys((fact_of(STATUS, last.status), *(fact for _, fact, _ in told)))
    words = [title, newest and newest.output, newest and newest.input, *dict.fromkeys(label for *_, label in told)]
    if all_words:
        words += [text for turn in kept.turns for text in _texts_of(turn, omitted)]
    text = "\n".join(filter(None, words))[:WORDS_CHARS]
    ends = digits_of(kept.root), digits_of(last.id)
    return CatalogueRow(kept.used, *ends, _encoder.encode(summary), list(islice(facts, MOST_FACTS)), text)


def _facts_of(turn: Saved) -> Iterator[tuple[str, str, str]]:
    """The facts of a turn, each with its kind and what it says in words; nothing of one that isn't as expected."""
    try:
        response = msgspec.json.decode(turn.response or b"{}", type=ReadableResponse)
    except _UNREADABLE:
        return
    if response.model:
        yield MODEL, fact_of(MODEL, response.model), response.model
    for key, value in (response.metadata or {}).items():
        yield METADATA, fact_of(METADATA, key, value), f"{key} {value}"
    for person in response.people:
        yield PERSON, fact_of(PERSON, person), person


def _omitted_by(turn: Saved) -> str | None:
    """The item that a conversation goes without from a turn on."""
    try:
        return msgspec.json.decode(turn.response or b"{}", type=ReadableResponse).omits
    except _UNREADABLE:
        return None


def _texts_of(turn: Saved, omitted: Collection[str]) -> Iterator[str]:
    try:
        output = msgspec.json.decode(turn.response or b"{}", type=ReadableResponse).output
        for item in (*ITEMS.decode(turn.items or b"[]"), *output):
            yield from texts_of(item, omitted)
    except _UNREADABLE:
        return


def _excerpt_of(turn: Saved, omitted: Collection[str]) -> Excerpt | None:
    try:
        return None if turn.response is None else excerpt_of(turn.response, turn.items or b"[]", omitted)
    except _UNREADABLE:
        return None
