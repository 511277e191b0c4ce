"""Items that are deleted from a conversation: what lists and later prompts have then, and what stays as it was."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from service.harmony.tokens import decode, encode, pack
from service.process import Settings
from store.codec import decode_response
from tests.core.responses.test_in_conversation import ask, kinds
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.inside import answer, called, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess

WEATHER: Any = {"type": "function", "name": "get_weather", "description": "", "parameters": None, "strict": False}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def begun(client: OpenAI, *texts: str) -> tuple[str, list[str]]:
    id = client.conversations.create(items=[user(text) for text in texts]).id
    return id, [str(item.id) for item in client.conversations.items.list(id, order="asc")]


def words(client: OpenAI, id: str) -> list[str]:
    return [text for _, text in kinds(client, id)]


def test_a_deleted_item_is_in_no_list_and_no_later_prompt(service: ServiceProcess) -> None:
    client = service.client()
    id, (ada, tea) = begun(client, "My name is Ada.", "I like tea.")
    left = client.conversations.items.delete(ada, conversation_id=id)
    assert left == client.conversations.retrieve(id)
    assert words(client, id) == ["I like tea."]
    assert "Ada" not in ask(client, "What is my name?", id).output_text
    assert next(item.id for item in client.conversations.items.list(id, order="asc")) == tea
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(ada, conversation_id=id)
    again: Any = {"type": "message", "id": ada, **user("My name is Ada, again.")}
    client.conversations.items.create(id, items=[again])
    assert words(client, id)[-1] == "My name is Ada, again."


def test_responses_keep_what_they_had(service: ServiceProcess) -> None:
    client = service.client()
    id, (ada,) = begun(client, "My name is Ada.")
    before = ask(client, "Hello.", id)
    client.conversations.items.delete(ada, conversation_id=id)
    after = ask(client, "Hello again.", id)
    assert ada in [item.id for item in client.responses.input_items.list(before.id)]
    assert ada not in [item.id for item in client.responses.input_items.list(after.id)]
    for response, knows in ((before, True), (after, False)):
        aside = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=response.id)
        assert ("Ada" in aside.output_text) is knows


def test_what_is_not_there_can_not_be_deleted(service: ServiceProcess) -> None:
    client = service.client()
    id, (item,) = begun(client, "hi")
    _, (other,) = begun(client, "hi")
    client.conversations.items.delete(item, conversation_id=id)
    for unknown in (item, other, "msg_1", item[:-1] + "f", "x" * 300):
        with pytest.raises(openai.NotFoundError) as refusal:
            client.conversations.items.delete(unknown, conversation_id=id)
        assert refusal.value.param == "item_id"


def test_nobody_deletes_what_another_tenant_has(tenants: ServiceProcess) -> None:
    acme, globex = tenants.client(ACME_KEY), tenants.client(GLOBEX_KEY)
    id, (item,) = begun(acme, "hi")
    own, _ = begun(globex, "ho")
    for conversation in (id, own):
        with pytest.raises(openai.NotFoundError):
            globex.conversations.items.delete(item, conversation_id=conversation)
    assert words(acme, id) == ["hi"]


# --- deleted responses ---


def test_a_deleted_response_leaves_its_items_to_the_conversation(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create().id
    made = [ask(client, text, id) for text in ("My name is Ada.", "I like tea.")]
    before = [item.id for item in client.conversations.items.list(id)]
    for response in made:
        client.responses.delete(response.id)
    assert [item.id for item in client.conversations.items.list(id)] == before
    for item in before:
        assert client.conversations.items.retrieve(str(item), conversation_id=id).id == item
    assert "Ada" in ask(client, "What is my name?", id).output_text
    for response in made:
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.input_items.list(response.id)


def test_a_response_that_is_erased_takes_its_items_along(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create().id
    first, second = (ask(client, text, id) for text in ("My name is Adelgunde.", "Count to 3."))
    for response in (first, second):
        client.responses.delete(response.id)
    assert holds(service, "My name is Adelgunde.")
    answer = service.http().delete(f"/v1/responses/{first.id}", params={"erase": True})
    assert answer.status_code == 404  # it was deleted before
    assert "Count to 3." in words(client, id)
    assert "My name is Adelgunde." not in words(client, id)
    assert not holds(service, "My name is Adelgunde.")


# --- erased items ---


def holds(service: ServiceProcess, text: str) -> bool:
    """Whether the store has a text anywhere, in JSON or in tokens."""
    ids = pack(encode(text))
    redis, stored = service.redis(), service.keys()
    for key in stored:
        value = redis.dump(key) if redis.type(key) != b"string" else redis.get(key)
        raw = value or b""
        if b":response:" in key or b":remains:" in key:
            raw = b"".join(decode_response(raw))
        if text.encode() in raw or ids in raw:
            return True
    return False


def test_an_erased_item_is_gone_for_all(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create().id
    response = ask(client, "My name is Brunhilde.", id)
    (question, *others) = client.conversations.items.list(id, order="asc").data
    assert holds(service, "My name is Brunhilde.")
    left = client.conversations.items.delete(str(question.id), conversation_id=id, extra_query={"erase": True})
    assert left.id == id
    assert [item.id for item in client.conversations.items.list(id, order="asc")] == [item.id for item in others]
    assert client.responses.retrieve(response.id).output == response.output
    assert client.responses.input_items.list(response.id).data == []
    aside = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=response.id)
    assert "Brunhilde" not in str(client.responses.input_items.list(aside.id).data[0])
    for item in others:  # the model repeats what it was told
        client.conversations.items.delete(str(item.id), conversation_id=id, extra_query={"erase": True})
    assert not holds(service, "My name is Brunhilde.")
    assert ask(client, "Hello.", id).status == "completed"


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_items_can_be_erased_while_they_are_listed(service: ServiceProcess, order: Any) -> None:
    client = service.client()
    id, _ = begun(client, *map(str, range(5)))
    ask(client, "Hello.", id)
    listed = [str(item.id) for item in client.conversations.items.list(id, order="asc")]
    seen: list[str] = []
    for item in client.conversations.items.list(id, order=order, limit=2):  # a page goes on behind an erased item
        seen.append(str(item.id))
        client.conversations.items.delete(seen[-1], conversation_id=id, extra_query={"erase": True})
    assert seen == (listed if order == "asc" else listed[::-1])
    assert client.conversations.items.list(id).data == []


def test_the_events_of_a_background_response_go_with_what_is_erased(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create().id
    stream = client.responses.create(model=MODEL, input="Say: xylophone", conversation=id, background=True, stream=True)
    made = list(stream)[-1].response  # type: ignore[union-attr]
    (said,) = [item for item in made.output if item.type == "message"]
    client.conversations.items.delete(said.id, conversation_id=id, extra_query={"erase": True})
    again = list(client.responses.retrieve(made.id, stream=True))
    assert said.id not in "".join(event.to_json() for event in again)


# --- what can't be caused from outside ---


def prompts(engine: ScriptedEngine) -> list[str]:
    return [decode(list(generation.prompt)) for generation in engine.generations]


@pytest.mark.parametrize("deleted", ["function_call", "function_call_output"])
async def test_a_call_and_its_output_are_in_a_prompt_together_or_not_at_all(settings: Settings, deleted: str) -> None:
    engine = scripted([called("get_weather", "{}")], [answer("Sunny.")], [answer("Fine.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        first = await client.responses.create(model=MODEL, input="Weather?", conversation=id, tools=[WEATHER])
        (call,) = [item for item in first.output if item.type == "function_call"]
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "nothing but sun"}
        await client.responses.create(model=MODEL, input=[output], conversation=id, tools=[WEATHER])
        listed = [item async for item in client.conversations.items.list(id)]
        (item,) = [item for item in listed if item.type == deleted]
        await client.conversations.items.delete(str(item.id), conversation_id=id)
        assert len([item async for item in client.conversations.items.list(id)]) == len(listed) - 1
        await client.responses.create(model=MODEL, input="And now?", conversation=id, tools=[WEATHER])
    before, after = prompts(engine)[1:]
    assert "nothing but sun" in before
    assert "to=functions.get_weather" in before
    assert "nothing but sun" not in after
    assert "to=functions.get_weather" not in after
    assert "Sunny." in after


def test_in_a_tree_without_a_conversation_nothing_is_left_of_a_deleted_response(service: ServiceProcess) -> None:
    client = service.client()
    first = client.responses.create(model=MODEL, input="hi")
    second = client.responses.create(model=MODEL, input="ho", previous_response_id=first.id)
    client.responses.delete(first.id)
    stored = service.keys()
    assert not any(b":remains:" in key and first.id[5:].encode() in key for key in stored)
    assert len(client.responses.input_items.list(second.id).data) == 1
