"""What the tests of background responses share: asking for one, waiting for where it stands, reading its events.

Everything goes over HTTP, as a user's program would. Never look into the store from here.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
from openai import AsyncOpenAI
from openai.types.responses import Response

from service.engine.port import Generation
from service.process import Settings
from tests.support.engine.scripted import Script, Step
from tests.support.service.inside import Inside
from tests.support.service.process import MODEL
from tests.support.service.streams import Event, parsed, sent
from tests.support.waiting import until

TERMINAL = ("completed", "incomplete", "failed", "cancelled")
SECONDS = 10.0


def changed(settings: Settings, **changes: object) -> Settings:
    """Settings with some of them changed, rules between them aside: what takes hours can then take milliseconds."""
    return settings.model_copy(update=changes)


async def submitted(client: AsyncOpenAI, text: str = "hi", after: str | None = None, **options: Any) -> Response:
    """A background response as it was accepted."""
    return await client.responses.create(
        model=MODEL, input=text, background=True, previous_response_id=after or openai.omit, **options
    )


async def reached(client: AsyncOpenAI, id: str, *statuses: str) -> Response:
    """The response, once its status is one of these."""
    return await until(lambda: client.responses.retrieve(id), SECONDS, wanted=lambda found: found.status in statuses)


async def ended(client: AsyncOpenAI, id: str) -> Response:
    return await reached(client, id, *TERMINAL)


async def said(client: AsyncOpenAI, id: str, text: str) -> Response:
    """The response, once so much of its last item is there."""
    return await until(lambda: client.responses.retrieve(id), SECONDS, wanted=lambda found: text in found.to_json())


async def retrieved(inside: Inside, id: str, **query: object) -> httpx.Response:
    """The answer to a plain GET."""
    async with inside.http() as http:
        return await http.get(f"/v1/responses/{id}", params={name: str(value) for name, value in query.items()})


async def streamed(inside: Inside, id: str, **query: object) -> list[Event]:
    """The events of a response, from wherever the query says, until [DONE]; a whole stream is past the grammar."""
    answer = await retrieved(inside, id, stream="true", **query)
    assert answer.status_code == 200, answer.text
    return sent(answer.text) if "starting_after" in query else parsed(answer.text)


@asynccontextmanager
async def opened_stream(client: AsyncOpenAI, **options: Any) -> AsyncIterator[tuple[str, Any]]:
    """A background response's id and its stream, which is hung up in the end, behind its first event."""
    stream = await client.responses.create(model=MODEL, input="hi", background=True, stream=True, **options)
    try:
        first = await anext(aiter(stream))
        yield first.response.id, stream
    finally:
        await stream.close()


def going_on(ids: Sequence[int], steps: Callable[[list[int]], Script]) -> Callable[[Generation], Script]:
    """A script of a model that would say `ids`, whoever asks and how much of it they have by then.

    `steps` makes what this attempt does, of what is left to say.
    """
    prompts: list[int] = []

    def play(generation: Generation) -> Sequence[Step]:
        prompts.append(len(generation.prompt))
        said = len(generation.prompt) - prompts[0]
        assert list(generation.prompt)[prompts[0] :] == list(ids[:said]), "the prompt goes on otherwise than the model"
        return steps(list(ids[said:]))

    return play
