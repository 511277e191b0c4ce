"""Background responses of a conversation: it is held from their acceptance to their end, whoever makes them."""

import asyncio
from collections import defaultdict
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.harmony.tokens import RETURN, encode
from service.settings.settings import Settings
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed, ended, said, submitted
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.seen import ask

WEATHER: Any = {"type": "function", "name": "get_weather", "description": "", "parameters": None, "strict": False}


async def begun(client: AsyncOpenAI) -> str:
    return (await client.conversations.create()).id


async def roles(client: AsyncOpenAI, id: str) -> list[str]:
    """The roles of a conversation's items, or else their types, oldest first."""
    items = [item.to_dict() async for item in client.conversations.items.list(id, order="asc")]
    return [str(item.get("role", item["type"])) for item in items]


async def refuse(client: AsyncOpenAI, id: str) -> None:
    """All that would add to the conversation is refused at once, as somebody else does."""
    for refused in (
        ask(client, input="hi", conversation=id),
        ask(client, input="hi", conversation=id, background=True),
        client.conversations.items.create(id, items=[{"role": "user", "content": "x"}]),
    ):
        with pytest.raises(openai.BadRequestError) as refusal:
            await refused
        assert (refusal.value.code, refusal.value.param) == ("conversation_locked", "conversation")


async def test_it_holds_its_conversation_while_it_waits_and_while_it_runs_against_every_replica(
    settings: Settings,
) -> None:
    go = asyncio.Event()
    engine = scripted([opened("Said so far,"), Stall(go), [*encode(" and the rest."), RETURN]], [answer("Next.")])
    async with serving(changed(settings, worker=False), scripted([])) as idle, idle.client() as other:
        id = await begun(other)
        made = await submitted(other, conversation=id)
        assert (made.status, made.conversation and made.conversation.id) == ("queued", id)
        await refuse(other, id)
        async with serving(settings, engine) as working, working.client() as client:
            await said(client, made.id, "Said so far")
            await refuse(client, id)
            await refuse(other, id)
            assert await roles(client, id) == []
            go.set()
            assert (await ended(client, made.id)).output_text == "Said so far, and the rest."
            assert await roles(client, id) == ["user", "assistant"]
            again = await ask(client, input="hi", conversation=id)
            assert again.output_text == "Next."
            assert await roles(client, id) == ["user", "assistant"] * 2


async def test_a_stream_of_it_ends_once_it_has_joined(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Yes.")])) as inside, inside.client() as client:
        id = await begun(client)
        for number in range(1, 4):
            stream = await ask(client, input="hi", conversation=id, background=True, stream=True)
            async for event in stream:
                if event.type == "response.completed":
                    break
            assert await roles(client, id) == ["user", "assistant"] * number


async def test_what_is_refused_lets_go(settings: Settings) -> None:
    async with (
        serving(changed(settings, worker=False, max_queued=1), scripted([])) as inside,
        inside.client() as client,
    ):
        shards = defaultdict[str, list[str]](list)
        while len(together := max(shards.values(), key=len, default=[])) < 2:
            made = await begun(client)
            shards[made[5:7]].append(made)
        other, id = together
        await submitted(client, conversation=other)
        with pytest.raises(openai.RateLimitError):
            await submitted(client, conversation=id)
        await client.conversations.items.create(id, items=[{"role": "user", "content": "x"}])
