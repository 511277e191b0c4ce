"""A conversation as its client lists it."""

from typing import Any

from openai import AsyncOpenAI

PAGE = 100

Said = list[tuple[str, str]]
"""The role and the text of each message, oldest first."""


async def said(client: AsyncOpenAI, id: str) -> Said:
    """What was said in a conversation; each of its items is there once."""
    items = [item.to_dict() async for item in client.conversations.items.list(id, order="asc", limit=PAGE)]
    assert len({str(item["id"]) for item in items}) == len(items)
    messages: list[Any] = [item for item in items if item["type"] == "message"]
    return [(each["role"], "".join(part["text"] for part in each["content"])) for each in messages]


async def begun(client: AsyncOpenAI) -> str:
    """The id of a new conversation."""
    return (await client.conversations.create()).id


async def roles(client: AsyncOpenAI, id: str) -> list[str]:
    """The roles of a conversation's items, or else their types, oldest first."""
    items = [item.to_dict() async for item in client.conversations.items.list(id, order="asc")]
    return [str(item.get("role", item["type"])) for item in items]
