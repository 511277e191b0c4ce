"""Pictures in prompts of ids, for vLLM's `/inference/v1/generate`.

The server is given the pictures beside the ids (`content_parts`). Where the template's mark of a picture stands among
them, it writes as many ids as the picture takes, and reads them from its prefix cache as those of its own clients. But
of messages it tells the many ids alone. So a look at two grey squares, once, finds the mark; and a prompt is written
with a grey square for each picture, in the place of which the mark is put. Pure.
"""

from collections.abc import Sequence
from itertools import chain

import msgspec

from service.engine.port import EngineError, Transcript
from service.engine.servers.kind import Count, TokenId, decode
from service.pictures import sizes_in, with_urls

RENDER = "/v1/chat/completions/render"

GREY = (
    b"data:image/png;base64,"
    b"iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PMQ0AAAwDoEqv9ErYvQQckD4XAQEBAQEBAQEBAQEB"
    b"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAYHLAB8+AWnmfUycAAAAAElFTkSuQmCC"
)
"""64 pixels square: some models take nothing smaller."""

_PART = {"type": "image_url", "image_url": {"url": GREY.decode()}}
LOOK, LOOK_TWICE = ([{"role": "user", "content": [_PART] * number}] for number in (1, 2))
"""Messages with a picture and with two, which are refused where a model sees none."""


class _Place(msgspec.Struct):
    offset: Count
    length: Count


class _Features(msgspec.Struct):
    mm_placeholders: dict[str, list[_Place]] = {}


class RenderedPrompt(msgspec.Struct):
    """The ids of a prompt as the server writes it, and where its pictures stand."""

    token_ids: list[TokenId]
    features: _Features | None = None

    def with_mark(self, mark: Sequence[int]) -> list[int]:
        ids, read = list[int](), 0
        for place in self._places():
            ids += [*self.token_ids[read : place.offset], *mark]
            read = place.offset + place.length
        return ids + self.token_ids[read:]

    def mark(self, template: Sequence[int]) -> tuple[int, ...]:
        """The mark, if the prompt is that of its template with the same mark for all pictures; else none."""
        places = self._places()
        if not places:
            return ()
        marks = len(template) - len(self.token_ids) + sum(place.length for place in places)
        start = places[0].offset
        mark = tuple(template[start : start + marks // len(places)])
        return mark if self.with_mark(mark) == list(template) else ()

    def _places(self) -> list[_Place]:
        found = {} if self.features is None else self.features.mm_placeholders
        return sorted(chain.from_iterable(found.values()), key=lambda place: place.offset)


_RENDERED = msgspec.json.Decoder(RenderedPrompt)


def read_rendered(body: bytes) -> RenderedPrompt:
    return decode(_RENDERED, body, EngineError("the vLLM server sent something other than a prompt"))


def shows_pictures(transcript: Transcript) -> bool:
    """Whether a transcript refers to any."""
    return bool(sizes_in(transcript.messages))


def in_grey(transcript: Transcript) -> Transcript:
    digests = [digest for digest, _ in sizes_in(transcript.messages)]
    return msgspec.structs.replace(
        transcript, messages=b"".join(with_urls(transcript.messages, dict.fromkeys(digests, GREY)))
    )


def content_parts(urls: Sequence[bytes]) -> list[dict[str, object]]:
    """Pictures beside ids, by data URLs; an empty one is of a picture that was deleted since."""
    return [{"type": "image_url", "url": msgspec.Raw(b'"%b"' % (url or GREY))} for url in urls]
