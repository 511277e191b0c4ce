"""Items that change the configuration of a conversation: in effect for all later responses, until replaced."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.harmony.tokens import decode
from service.process import Settings
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL

SCHEMA: Any = {
    "type": "json_schema",
    "name": "greeting",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
GREETING = json.dumps({"word": "hi"})


def update(effort: str | None = None, form: Any = None) -> Any:
    """An item that changes what is given."""
    item: dict[str, Any] = {"type": "configuration_update"}
    if effort is not None:
        item["reasoning"] = {"effort": effort}
    if form is not None:
        item["text"] = {"format": form}
    return item


def effort_of(engine: ScriptedEngine) -> str:
    """The effort that the last prompt says."""
    prompt = decode(list(engine.generations[-1].prompt))
    return prompt.partition("Reasoning: ")[2].split("\n")[0]


async def ask(client: AsyncOpenAI, id: str, *items: Any, **options: Any) -> Any:
    sent = [*items, {"role": "user", "content": "hi"}]
    return await client.responses.create(model=MODEL, input=sent, conversation=id, **options)


async def begun(client: AsyncOpenAI) -> str:
    return (await client.conversations.create()).id


@pytest.mark.parametrize("by_hand", [True, False])
async def test_an_effort_stays_until_another_replaces_it(settings: Settings, by_hand: bool) -> None:
    engine = scripted([answer("Yes.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        id = await begun(client)
        for effort in ("low", "high"):
            if by_hand:
                await client.conversations.items.create(id, items=[update(effort)])
                first = await ask(client, id)
            else:
                first = await ask(client, id, update(effort))
            again = await ask(client, id, reasoning={"effort": "medium"})
            assert [each.reasoning.effort for each in (first, again)] == [effort, effort]
            assert effort_of(engine) == effort


async def test_each_setting_is_replaced_by_itself(settings: Settings) -> None:
    engine = scripted([answer(GREETING)])
    async with serving(settings, engine) as inside, inside.client() as client:
        id = await begun(client)
        await client.conversations.items.create(id, items=[update("low", SCHEMA)])
        await client.conversations.items.create(id, items=[update("high")])
        first = await ask(client, id)
        assert (first.reasoning.effort, first.text.format.type, first.text.format.name) == (
            "high",
            "json_schema",
            "greeting",
        )
        second = await ask(client, id, update(form={"type": "text"}))
        third = await ask(client, id)
        assert [each.text.format.type for each in (second, third)] == ["text", "text"]
        assert third.reasoning.effort == "high"


async def test_what_is_deleted_is_no_longer_in_effect(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Yes.")])) as inside, inside.client() as client:
        made = await client.conversations.create(items=[update("low")])
        added = await client.conversations.items.create(made.id, items=[update("high")])
        for id, left in ((added.data[0].id, "low"), (None, "medium")):
            item = id or (await client.conversations.items.list(made.id, order="asc")).data[0].id
            await client.conversations.items.delete(str(item), conversation_id=made.id)
            assert (await ask(client, made.id)).reasoning.effort == left


@pytest.mark.parametrize("form", [{"type": "poem"}, {"type": "json_schema", "name": "x"}, 5])
async def test_a_format_that_can_not_be_is_refused_at_once(settings: Settings, form: Any) -> None:
    async with serving(settings, scripted([answer("Yes.")])) as inside, inside.client() as client:
        id = await begun(client)
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.conversations.items.create(id, items=[{"role": "user", "content": "x"}, update(form=form)])
        assert str(refusal.value.param).startswith("items[1].text.format")
        assert (await client.conversations.items.list(id)).data == []
