"""What an engine saw of a request, to compare with what was asked: prompts as text, and whom a tag lets it address."""

import json
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any

from openai import AsyncOpenAI

from service.harmony.tokens import FIRST_SPECIAL, decode
from tests.support.engine.scripted import ScriptedEngine
from tests.support.responses.samples import MARKS
from tests.support.service.inside import Inside
from tests.support.service.process import MODEL
from tests.support.service.streams import Event, parsed

_NAMES = {mark: name for name, mark in MARKS.items()}


def prompts(engine: ScriptedEngine) -> list[str]:
    """The prompts of all generations, with their marks written out."""
    return [
        "".join(
            "".join(_NAMES[mark] for mark in ids) if special else decode([*ids])
            for special, ids in groupby(generation.prompt, lambda id: id >= FIRST_SPECIAL)
        )
        for generation in engine.generations
    ]


def tags(engine: ScriptedEngine) -> list[Any]:
    """The formats of all generations' structural tags; None where a generation has none."""
    given = [generation.sampling.structural_tag for generation in engine.generations]
    return [None if tag is None else json.loads(tag)["format"] for tag in given]


def addressed(tag: Any) -> set[str]:
    """Who may be addressed in a tag's last message: recipients, and "final" for an answer."""
    texts = set[str]()
    parts = [tag]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            texts |= {part["value"]} if part.get("type") == "const_string" else set()
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return {text for text in texts if "." in text or text == "final"}


async def streamed(inside: Inside, key: str = "none", **body: Any) -> list[Event]:
    """The events of a whole stream, past the grammar and the SDK's fold."""
    headers = {"authorization": f"Bearer {key}"}
    async with inside.http() as http:
        given = await http.post("/v1/responses", json={"model": MODEL, "stream": True, **body}, headers=headers)
    assert given.status_code == 200, given.text
    return parsed(given.text)


async def made(inside: Inside, **body: Any) -> Event:
    """The response at the end of a stream."""
    return (await streamed(inside, **body))[-1]["response"]


def asking(**usual: Any) -> Callable[..., Awaitable[Any]]:
    """Creates a response with these members, but for those that a call of it names."""

    async def ask(client: AsyncOpenAI, **members: Any) -> Any:
        return await client.responses.create(**({"model": MODEL} | usual | members))

    return ask


ask = asking()
