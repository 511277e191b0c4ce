"""What was erased of a conversation is nowhere in the store any more, as no ids either, whatever its template drops."""

import base64
import json
import re
from array import array
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import zstandard
from openai import AsyncOpenAI

from service.engine.port import Transcript
from service.harmony.tokens import encode
from service.process import Settings
from store.codec import dictionary
from store.redis.connection import connect
from tests.support.markup.speaker import ASSISTANT, END, START, Speaker, encoded
from tests.support.service.inside import Inside
from tests.support.waiting import until

SECRET = "marmalade 4711"
FRAME = re.compile(rb"\x28\xb5\x2f\xfd")
"""What each zstd frame begins with."""


def said(prompt: str) -> str:
    """What the model says: it thinks of, and repeats, what it was told last."""
    words = prompt[: -len(ASSISTANT)].rpartition(f"{START}user\n")[2].partition(END)[0]
    return f"<think>\nThey say {words}.\n</think>\n\nYou said: {words}{END}"


class Forgetful(Speaker):
    """Its template drops the reasoning of all turns but the last one, as Qwen's."""

    async def render(self, transcript: Transcript, model: str) -> list[int]:
        messages = json.loads(transcript.messages)
        for message in messages:
            message.pop("reasoning_content", None)
        return await super().render(msgspec.structs.replace(transcript, messages=json.dumps(messages).encode()), model)


@pytest.fixture
def speaker() -> Speaker:
    return Forgetful("qwen3", said, pieces=8)


def forms(text: str) -> list[bytes]:
    """A text as somebody might have stored it: as it is, as ids of the model and of Harmony, and all that in base64."""
    plain = [text.encode(), *(array("I", ids).tobytes() for ids in (encoded(text), encode(text)))]
    return [*plain, *(within for each in plain for within in in_base64(each))]


def in_base64(part: bytes) -> list[bytes]:
    """What surely stands in the base64 of bytes that have this part, wherever it begins."""
    found = [base64.b64encode(bytes(before) + part) for before in range(3)]
    return [each[(0, 2, 3)[before] : -4] for before, each in enumerate(found)]


@pytest.fixture
async def others(settings: Settings) -> set[bytes]:
    """The keys that other tests left in the store: to read them all took a minute."""
    own = settings.redis_prefix.encode()
    async with connect(settings.redis_url) as redis:
        return {key for key in await redis.keys() if not key.startswith(own)}


async def values(url: str, others: Collection[bytes]) -> list[bytes]:
    """All that a store has besides the keys of others, and what it has compressed."""
    redis: Any = connect(url)
    found: list[bytes] = []
    try:
        for key in {*await redis.keys()}.difference(others):
            found.append(key)
            kind = await redis.type(key)
            if kind == b"string":
                found.append(await redis.get(key) or b"")
            elif kind == b"hash":
                found += [part for pair in (await redis.hgetall(key)).items() for part in pair]
            elif kind == b"stream":
                found += [part for _, entry in await redis.xrange(key) for part in entry.values()]
            elif kind == b"list":
                found += await redis.lrange(key, 0, -1)
            else:
                found += await (redis.smembers(key) if kind == b"set" else redis.zrange(key, 0, -1))
    finally:
        await redis.aclose()
    return [*found, *(part for each in found for part in unpacked(each))]


def unpacked(value: bytes) -> list[bytes]:
    """What a value has compressed, with a dictionary or without."""
    frames = [value[found.start() :] for found in FRAME.finditer(value)]
    return [reader(frame).decompressobj().decompress(frame) for frame in frames]


def reader(frame: bytes) -> zstandard.ZstdDecompressor:
    """What reads a frame, by the dictionary that it names."""
    number = zstandard.get_frame_parameters(frame).dict_id
    return zstandard.ZstdDecompressor(dict_data=dictionary(number) if number else None)


async def held(settings: Settings, others: Collection[bytes]) -> int:
    """In how many forms the store has the secret."""
    stored = await values(settings.redis_url, others)
    return sum(any(form in value for value in stored) for form in forms(SECRET))


async def told(client: AsyncOpenAI, words: Sequence[str], **more: Any) -> list[Any]:
    """A response behind another, to each of these words."""
    responses: list[Any] = []
    for each in words:
        before = responses[-1].id if responses and "conversation" not in more else None
        asked = await client.responses.create(model="speaker", input=each, previous_response_id=before, **more)
        responses.append(await until(partial(client.responses.retrieve, asked.id), wanted=lambda found: found.usage))
    return responses


WORDS = (f"Keep {SECRET}.", "Hello!", "Hello again!", "Once more!")


@pytest.mark.parametrize("background", [False, True])
async def test_items_that_are_erased_are_in_no_note_of_later_turns(
    settings: Settings, client: AsyncOpenAI, speaker: Speaker, others: set[bytes], background: bool
) -> None:
    conversation = await client.conversations.create()
    await told(client, WORDS, conversation=conversation.id, background=background)
    assert speaker.prompts[-1].count(SECRET) == 2
    assert "<think>" not in speaker.prompts[-1]  # the template has broken each prefix
    assert await held(settings, others) > 2
    items = [item async for item in client.conversations.items.list(conversation.id, order="asc")]
    for item in items[:3]:
        await client.conversations.items.delete(
            str(item.id), conversation_id=conversation.id, extra_query={"erase": True}
        )
    assert await held(settings, others) == 0
    await told(client, ["What was it?"], conversation=conversation.id)
    assert SECRET not in speaker.prompts[-1]


@pytest.mark.parametrize("background", [False, True])
async def test_a_response_that_is_erased_is_in_no_note_of_later_turns(
    settings: Settings, client: AsyncOpenAI, service: Inside, others: set[bytes], background: bool
) -> None:
    first, *_ = await told(client, WORDS, background=background)
    assert await held(settings, others) > 2
    async with service.http() as http:
        assert (await http.delete(f"/v1/responses/{first.id}", params={"erase": True})).is_success
    assert await held(settings, others) == 0
