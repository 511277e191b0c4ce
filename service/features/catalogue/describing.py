"""Describing: what the row of a tree shows, and by which facts and words the tree is found."""

from collections.abc import Iterator
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
    and its metadata.
    """
    newest = _excerpt_of(kept.newest)
    openings = [found for turn in kept.opening if (found := _excerpt_of(turn)) is not None]
    title = next((each.input for each in openings if each.input), None)
    at = KeptNewest(kept.newest.id, kept.newest.status, kept.newest.created, newest)
    summary = KeptSummary(title, kept.number, kept.conversation, at)
    facts, labels = dict.fromkeys([fact_of(STATUS, kept.newest.status)]), dict[str, None]()
    told = [each for turn in kept.turns for each in _facts_of(turn)]
    told.sort(key=lambda each: each[0] != PERSON)  # people first, as there may not be room for all
    for _, fact, label in told:
        facts[fact] = labels[label] = None
    words = [title or "", newest.output if newest else "", newest.input if newest else "", *labels]
    if all_words:
        words += [text for turn in kept.turns for text in _texts_of(turn)]
    text = "\n".join(filter(None, words))[:WORDS_CHARS]
    shown = _encoder.encode(summary)
    root, last = digits_of(kept.root), digits_of(kept.newest.id)
    return CatalogueRow(kept.used, root, last, shown, list(islice(facts, MOST_FACTS)), text)


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


def _texts_of(turn: Saved) -> Iterator[str]:
    try:
        output = msgspec.json.decode(turn.response or b"{}", type=ReadableResponse).output
        for item in (*ITEMS.decode(turn.items or b"[]"), *output):
            yield from texts_of(item, ())
    except _UNREADABLE:
        return


def _excerpt_of(turn: Saved) -> Excerpt | None:
    try:
        return None if turn.response is None else excerpt_of(turn.response, turn.items or b"[]")
    except _UNREADABLE:
        return None
