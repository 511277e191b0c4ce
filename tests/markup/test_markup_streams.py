"""Any stream of tokens, for every markup: nothing raises, nothing is lost, and it doesn't matter how it was cut."""

import random
import re
from collections.abc import Sequence
from itertools import chain

import pytest

from service.harmony.segments import Closed
from service.markup.parsers.parser import MARKUPS
from tests.support.markup.streams import SPECIAL, Token, cut, messages_of, parser, segments_of
from tests.support.markup.writing import draw_tokens, mutated

SHORT, LONG = 400, 10_000
WORD = re.compile(r"w\d{4}z")


def stream(markup: str, seed: int, *, most: int) -> tuple[list[Token], list[str], bool]:
    """Tokens with up to so many mutations, the marks that are one of them, and whether the prompt ended in thinking."""
    chance = random.Random(f"{markup}{seed}")
    own = list(MARKUPS[markup].spellings)
    special = [mark for mark in own if mark in SPECIAL] if seed % 2 else []
    return mutated(draw_tokens(markup, special, chance), own, chance, most), special, chance.random() < 0.3


def check(markup: str, seed: int) -> None:
    """All promises on one mutated stream."""
    tokens, special, thinking = stream(markup, seed, most=6)
    segments = segments_of(parser(markup, special, thinking=thinking), [[token] for token in tokens])
    messages = messages_of(segments)
    sampled = [token.id for token in tokens]
    kept = list(chain.from_iterable(each.ids for each in segments if isinstance(each, Closed)))
    assert kept == sampled[: len(kept)]
    text = "".join(token.text for token in tokens)
    out = " ".join(f"{message.to} {message.text}" for message in messages)
    read = iter(WORD.findall(out))
    assert all(word in read for word in WORD.findall(text)), "a word is missing, or in another place"
    behind = "".join(token.text for token in tokens[len(kept) :])
    assert not WORD.search(behind), "ids are missing that were no marks"
    if not special:
        chunks: Sequence[Sequence[Token]]
        for chunks in ([tokens], list(cut(tokens, random.Random(seed)))):
            assert messages_of(segments_of(parser(markup, special, thinking=thinking), chunks)) == messages


@pytest.mark.parametrize("markup", MARKUPS)
def test_mutated_streams_lose_no_text_and_end_in_the_same_however_they_are_cut(markup: str) -> None:
    for seed in range(SHORT):
        check(markup, seed)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("markup", MARKUPS)
def test_ten_thousand_mutated_streams_lose_no_text(markup: str) -> None:
    for seed in range(SHORT, SHORT + LONG):
        check(markup, seed)
