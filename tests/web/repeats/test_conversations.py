"""Conversations, and items added to them, by requests that come again with their key."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.settings.settings import Settings
from store.keys import BY_HAND_MARK, CONVERSATION_MARK, mark_of
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.listed import said
from tests.support.service.process import MODEL
from tests.web.repeats.test_repeats import keyed, stored

ITEM: Any = {"role": "user", "content": "My name is Ada."}


async def begin(client: AsyncOpenAI, key: str = "a conversation", **body: Any) -> Any:
    return await client.conversations.create(extra_headers=keyed(key), **body)


async def add(client: AsyncOpenAI, id: str, key: str = "items") -> Any:
    return await client.conversations.items.create(id, items=[ITEM, ITEM], extra_headers=keyed(key))


async def marked(inside: Inside, mark: str) -> int:
    """How many turns have a mark."""
    return sum(mark_of(digits) == mark for digits in await stored(inside))


async def test_items_are_added_once(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        first, *others = await asyncio.gather(*(add(client, id) for _ in range(10)))

        assert all(other == first for other in others)
        assert len(first.data) == 2
        assert await said(client, id) == [("user", "My name is Ada.")] * 2
        await add(client, id, "others")
        assert len(await said(client, id)) == 4


async def test_a_conversation_is_begun_once(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        found = await asyncio.gather(*(begin(client, items=[ITEM], metadata={"a": "b"}) for _ in range(10)))

        assert len({each.id for each in found}) == 1
        assert await marked(inside, CONVERSATION_MARK) == await marked(inside, BY_HAND_MARK) == 1
        assert await said(client, found[0].id) == [("user", "My name is Ada.")]
        with pytest.raises(openai.UnprocessableEntityError):
            await begin(client)


async def test_a_fork_is_made_once(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        source = (await client.conversations.create(items=[ITEM])).id
        fork: Any = {"harmonium": {"fork_of": source}}
        found = [await begin(client, extra_body=fork) for _ in range(2)]

        assert found[0] == found[1]
        assert found[0].id != source
        assert await marked(inside, CONVERSATION_MARK) == 2


async def test_a_response_joins_its_conversation_once(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello Ada.")])) as inside, inside.client() as client:
        id = (await client.conversations.create(items=[ITEM])).id
        asking = [
            client.responses.create(model=MODEL, input="Hi.", conversation=id, extra_headers=keyed()) for _ in range(5)
        ]
        found = await asyncio.gather(*asking)

        assert len({each.id for each in found}) == 1
        assert await said(client, id) == [("user", "My name is Ada."), ("user", "Hi."), ("assistant", "Hello Ada.")]


async def test_what_is_gone_since_is_not_found(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await begin(client)).id
        await client.conversations.delete(id)
        with pytest.raises(openai.NotFoundError):
            await begin(client)


async def test_items_that_are_erased_since_are_not_told_again(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        for left, gone in zip((1, 0), (await add(client, id)).data, strict=True):
            await client.conversations.items.delete(gone.id, conversation_id=id, extra_query={"erase": True})
            again = await add(client, id)
            assert (len(again.data), len(await said(client, id))) == (left, left)
            assert gone.id not in again.to_json()


async def test_items_of_a_conversation_that_is_deleted_since_are_not_told_again(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        await add(client, id)
        await client.conversations.delete(id)
        with pytest.raises(openai.NotFoundError, match=id):
            await add(client, id)


async def test_what_was_refused_is_not_known(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        for items in ([], [{"type": "nonsense"}]):
            with pytest.raises(openai.BadRequestError):
                await client.conversations.items.create(id, items=items, extra_headers=keyed("items"))  # type: ignore[arg-type]
        with pytest.raises(openai.NotFoundError):
            await add(client, f"{id[:-1]}{'0' if id[-1] != '0' else '1'}")

        assert len((await add(client, id)).data) == 2
