"""What the demo engine samples under a structural tag, checked against the tag.

Which ids a tag lets through is decided here by a reader of tags of its own, simpler than an engine's: it finds where
each format may end, and takes whatever has no marks in it for a content.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.features.demo.sampling import sampled_answer
from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, END, FIRST_SPECIAL, MESSAGE, RETURN, START, STOPS, decode


def said(tokens: Sequence[int], tag: str | None = None, stop_ids: tuple[int, ...] = STOPS) -> list[int]:
    """What is sampled, which the tag lets through."""
    sampled = [token for piece in sampled_answer(tokens, tag, stop_ids) for token in piece]
    assert sampled[-1] in stop_ids
    if tag:
        assert any(end == len(sampled) - 1 for end in ends(json.loads(tag)["format"], sampled, 0)), written(sampled)
    return sampled


def ends(part: Mapping[str, Any], ids: list[int], start: int) -> Iterator[int]:
    """Where a format may end that begins at `start`. A content that isn't held ends before the next mark."""
    match part["type"]:
        case "sequence":
            places = {start}
            for element in part["elements"]:
                places = {end for place in places for end in ends(element, ids, place)}
            yield from places
        case "or":
            yield from {end for element in part["elements"] for end in ends(element, ids, start)}
        case "optional":
            yield start
            yield from ends(part["content"], ids, start)
        case "token":
            if ids[start : start + 1] == [part["token"]]:
                yield start + 1
        case "const_string":
            text = [place for place in range(start, len(ids) + 1) if decode(ids[start:place]) == part["value"]]
            yield from [place for place in text if all(id < FIRST_SPECIAL for id in ids[start:place])]
        case _:
            yield next(place for place in range(start, len(ids)) if ids[place] >= FIRST_SPECIAL)


MARKS = {START: "<start>", END: "<end>", MESSAGE: "<message>", CHANNEL: "<channel>", CALL: "<call>"}
MARKS |= {RETURN: "<return>", CONSTRAIN: "<constrain>"}


def written(ids: Sequence[int]) -> str:
    """Ids as a text, marks and all."""
    return "".join(MARKS.get(id) or decode([id]) for id in ids)


def called(ids: Sequence[int]) -> list[tuple[str, str]]:
    """The calls in an answer: whom, and with what."""
    messages = written(ids).split("<call>")[:-1]
    parts = [one[one.index(" to=") + 4 :].split("<message>") for one in messages]
    return [(recipient.split("<constrain>")[0].split("<channel>")[0].strip(), text) for recipient, text in parts]
