"""Ids that clients name again: nothing is taken twice, and an id that was given is known."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, AsyncStream

from service.harmony.tokens import CHANNEL, RETURN, decode, encode
from service.process import Settings, load_settings
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.service.inside import answer, called, opened, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess

MADE_UP: list[str | None] = ["msg_1", "__fake_id__", "call_" + "0" * 48, "", None]
"""Ids that say nothing of which item it is."""


def user(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text, **members}


def reference(item: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]}


def itself(item: Any) -> dict[str, Any]:
    return item


def ask(http: httpx.Client, path: str = "", **members: Any) -> Any:
    return http.post(f"/v1/responses{path}", json={"model": MODEL, **members}).json()


def items(http: httpx.Client, conversation: str) -> list[Any]:
    return http.get(f"/v1/conversations/{conversation}/items?order=asc").json()["data"]


def assert_duplicate(said: Any, id: str, code: str | None = None) -> None:
    message = f"Duplicate item found with id {id}. Remove duplicate items from your input and try again."
    error = said.get("error", said)
    assert {name: error[name] for name in ("message", "type", "param", "code")} == {
        "message": message,
        "type": "invalid_request_error",
        "param": "input" if code is None else "items",
        "code": code,
    }


# --- nothing is taken twice ---


@pytest.mark.parametrize("again", [itself, reference])
@pytest.mark.parametrize(
    ("path", "members"),
    [
        ("", {}),
        ("", {"stream": True}),
        ("", {"background": True}),
        ("", {"store": False}),
        ("/compact", {}),
        ("/input_tokens", {}),
    ],
)
def test_an_item_that_the_conversation_has_is_refused(
    service: ServiceProcess, path: str, members: Any, again: Callable[[Any], Any]
) -> None:
    http = service.http()
    conversation = http.post("/v1/conversations", json={"items": [user("By hand.")]}).json()["id"]
    made = ask(http, input="Hello.", conversation=conversation)
    known = items(http, conversation)
    for named in ({"conversation": conversation}, {"previous_response_id": made["id"]}):
        if path == "/compact" and "conversation" in named:
            continue
        for item in known:
            said = ask(http, path, input=[user("And?"), again(item)], **named, **members)
            assert_duplicate(said, item["id"])
    assert items(http, conversation) == known


@pytest.mark.parametrize("again", [itself, reference])
def test_an_item_is_neither_added_again_nor_to_a_fork(service: ServiceProcess, again: Callable[[Any], Any]) -> None:
    http = service.http()
    first = http.post("/v1/conversations", json={"items": [user("By hand.")]}).json()["id"]
    (item,) = items(http, first)
    code = "item_already_in_conversation"
    added = http.post(f"/v1/conversations/{first}/items", json={"items": [again(item)]}).json()
    assert_duplicate(added, item["id"], code)
    forked = {"items": [again(item)], "harmonium": {"fork_of": first}}
    assert_duplicate(http.post("/v1/conversations", json=forked).json(), item["id"], code)
    assert len(items(http, http.post("/v1/conversations", json={"items": [again(item)]}).json()["id"])) == 1


def test_an_input_has_an_item_once(service: ServiceProcess) -> None:
    http = service.http()
    conversation = http.post("/v1/conversations", json={"items": [user("By hand.")]}).json()["id"]
    (item,) = items(http, conversation)
    foreign = user("From elsewhere.", id="msg_" + "0a" * 25)
    for twice in ([item, item], [item, reference(item)], [reference(item)] * 2, [foreign, foreign]):
        id = twice[0]["id"]
        for path in ("", "/compact", "/input_tokens"):
            assert_duplicate(ask(http, path, input=twice), id)
        for path in ("", f"/{http.post('/v1/conversations', json={}).json()['id']}/items"):
            said = http.post(f"/v1/conversations{path}", json={"items": twice}).json()
            assert said["error"]["message"].startswith(f"Duplicate item found with id {id}.")
            assert said["error"]["param"] == "items"


def test_ids_that_clients_make_up_are_used_again(service: ServiceProcess) -> None:
    http = service.http()
    for id in MADE_UP:
        made = ask(http, input=[user("One.", id=id), user("Two.", id=id)])
        assert made["status"] == "completed", made
        again = ask(http, input=[user("One.", id=id)], previous_response_id=made["id"])
        assert again["status"] == "completed", again


@pytest.mark.parametrize("erase", [False, True])
def test_an_item_that_was_deleted_may_be_sent_again(service: ServiceProcess, *, erase: bool) -> None:
    http = service.http()
    said = [user("I like tea."), {"type": "web_search_call", "status": "completed"}]
    conversation = http.post("/v1/conversations", json={"items": said}).json()["id"]
    known = items(http, conversation)
    for item in known:
        http.delete(f"/v1/conversations/{conversation}/items/{item['id']}?erase={erase}".lower())
    made = ask(http, input=known, conversation=conversation)
    assert made["status"] == "completed", made


# --- a call that was cut short is known by its id ---

TOOLS: Any = {
    "function": {"type": "function", "name": "f", "parameters": None, "strict": False},
    "custom": {"type": "custom", "name": "f"},
    "shell": {"type": "shell"},
}
OUTPUTS = {"function": "function_call_output", "custom": "custom_tool_call_output", "shell": "shell_call_output"}


@pytest.mark.parametrize("way", ["previous_response_id", "conversation", "added", "stateless"])
@pytest.mark.parametrize("kind", TOOLS)
async def test_a_call_that_was_cut_short_may_have_an_output(settings: Settings, kind: str, way: str) -> None:
    begun = called("f", '{"input":"Once upon a time')[:-1]
    if kind == "shell":
        begun = [*encode(" to=container.exec"), *begun[begun.index(CHANNEL) :]]
    engine = scripted([begun], [answer("I see.")])
    told = [{"stdout": "It was cut.", "stderr": ""}] if kind == "shell" else "It was cut."
    async with serving(settings, engine) as inside, inside.http() as http:

        async def post(path: str, **members: Any) -> Any:
            response = await http.post(f"/v1/{path}", json=members)
            assert response.status_code == 200, response.text
            return response.json()

        conversation = (await post("conversations"))["id"]
        ask = partial(post, "responses", model=MODEL, tools=[TOOLS[kind]])
        joined = {} if way in ("previous_response_id", "stateless") else {"conversation": conversation}
        made = await ask(input="Go.", max_output_tokens=len(begun), **joined)
        (cut,) = made["output"]
        assert (made["status"], cut["status"]) == ("incomplete", "incomplete")
        output = {"type": OUTPUTS[kind], "call_id": cut["call_id"], "output": told}
        if way == "previous_response_id":
            last = await ask(input=[output], previous_response_id=made["id"])
        elif way == "conversation":
            last = await ask(input=[output], conversation=conversation)
        elif way == "added":
            await post(f"conversations/{conversation}/items", items=[output])
            last = await ask(input="Well?", conversation=conversation)
        else:
            last = await ask(input=[{"role": "user", "content": "Go."}, cut, output])
        again = await ask(input="And?", previous_response_id=last["id"])
        assert again["status"] == "completed"
    *_, behind, later = (decode(generation.prompt) for generation in engine.generations)
    shown = "functions.f" if kind != "shell" else "container.exec"
    assert behind.count("It was cut.") == later.count("It was cut.") == 1
    assert behind.count(f"to={shown}") == 1
    if way != "stateless" or kind == "function":
        assert behind.index("Once upon a time") < behind.index("It was cut.")


@pytest.mark.parametrize("sent_back", [False, True])
async def test_a_call_that_was_cut_short_needs_no_output(settings: Settings, *, sent_back: bool) -> None:
    begun = called("f", '{"input":"Once upon a time')[:-1]
    engine = scripted([begun], [answer("I see.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        tools: Any = [TOOLS["function"]]
        made = await client.responses.create(model=MODEL, input="Go.", tools=tools, max_output_tokens=len(begun))
        before = [user("Go."), *(item.to_dict() for item in made.output)] if sent_back else []
        sent: Any = [*before, user("Go on.")]
        previous = None if sent_back else made.id
        last = await client.responses.create(model=MODEL, input=sent, previous_response_id=previous)
        assert last.output_text == "I see."
    assert "Once upon" not in decode(engine.generations[-1].prompt)


# --- a response is known from `response.created` on ---

TIMES = 4


def talking(times: int = 1) -> ScriptedEngine:
    """An engine that is stopped amid an answer so many times, before each time that it answers."""
    return scripted(*[[opened("One, two"), Stall()], [answer("As you wish.")]] * times)


async def begun(client: AsyncOpenAI, **members: Any) -> tuple[str, AsyncStream[Any]]:
    """The id of a response that is made, and its stream, once something was said."""
    stream = await client.responses.create(model=MODEL, input="Count.", stream=True, **members)
    id = ""
    async for event in stream:
        id = event.response.id if event.type == "response.created" else id
        if event.type == "response.output_text.delta":
            break
    return id, stream


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_hangs_up_goes_on_at_once(settings: Settings, *, elsewhere: bool) -> None:
    here, there = talking(TIMES), scripted([answer("As you wish.")])
    async with (
        serving(settings, here) as inside,
        serving(settings, there) as other,
        inside.client() as client,
        (other if elsewhere else inside).client() as after,
    ):
        for _ in range(TIMES):
            id, stream = await begun(client)
            await stream.close()
            last = await after.responses.create(model=MODEL, input="Stop.", previous_response_id=id)
            assert last.output_text == "As you wish."
            said: list[Any] = [item async for item in after.responses.input_items.list(last.id, order="asc")]
            assert [item.content[0].text for item in said] == ["Count.", "One, two", "Stop."]
            if elsewhere:  # its script has an answer before the next stall
                await client.responses.create(model=MODEL, input="Hello.")


async def test_who_has_read_the_last_event_goes_on_at_once_and_so_do_twenty(settings: Settings) -> None:
    async with serving(settings, scripted([answer("As you wish.")])) as inside, inside.client() as client:

        async def ended(**members: Any) -> str:
            async for event in await client.responses.create(model=MODEL, input="Go on.", stream=True, **members):
                if event.type == "response.completed":
                    return event.response.id
            raise AssertionError

        first = await ended()
        assert len({*await asyncio.gather(*(ended(previous_response_id=first) for _ in range(20)))}) == 20
        conversation = await client.conversations.create()
        for _ in range(5):
            await ended(conversation=conversation.id)


async def test_who_hangs_up_goes_on_in_the_conversation_at_once(settings: Settings) -> None:
    async with serving(settings, talking(TIMES)) as inside, inside.client() as client:
        for _ in range(TIMES):
            conversation = (await client.conversations.create()).id
            _, stream = await begun(client, conversation=conversation)
            await stream.close()
            await client.responses.create(model=MODEL, input="Stop.", conversation=conversation)
            items = [item async for item in client.conversations.items.list(conversation)]
            assert len(items) == 4


async def test_what_still_runs_is_waited_for_and_then_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.responses.running.ENDING_SECONDS", 0.01)
    go_on = asyncio.Event()
    engine = scripted([opened("One, two"), Stall(go_on), [RETURN]], [answer("As you wish.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        id, stream = await begun(client)
        with pytest.raises(openai.BadRequestError, match="is in_progress") as error:
            await client.responses.create(model=MODEL, input="And?", previous_response_id=id)
        assert (error.value.code, error.value.param) == ("previous_response_in_progress", "previous_response_id")
        monkeypatch.setattr("service.responses.running.ENDING_SECONDS", 20.0)
        waiting = asyncio.create_task(client.responses.create(model=MODEL, input="And?", previous_response_id=id))
        await asyncio.sleep(0)
        go_on.set()
        assert (await waiting).output_text == "As you wish."
        await stream.close()


async def test_a_response_that_runs_is_shown_and_neither_deleted_nor_cancelled(settings: Settings) -> None:
    async with serving(settings, talking()) as inside, inside.client() as client:
        id, stream = await begun(client)
        shown: Any = (await client.responses.retrieve(id)).to_dict()
        (item,) = shown["output"]
        assert (shown["status"], item["status"], item["content"][0]["text"]) == (*["in_progress"] * 2, "One, two")
        for refused, words in ((client.responses.delete, "in-flight"), (client.responses.cancel, "synchronous")):
            with pytest.raises(openai.BadRequestError, match=words):
                await refused(id)
        await stream.close()
        await client.responses.delete(id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(id)


async def test_what_is_not_stored_is_unknown_to_others(settings: Settings) -> None:
    async with serving(settings, talking()) as inside, inside.client() as client:
        id, stream = await begun(client, store=False)
        with pytest.raises(openai.BadRequestError) as error:
            await client.responses.create(model=MODEL, input="And?", previous_response_id=id)
        assert error.value.code == "previous_response_not_found"
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(id)
        await stream.close()


async def test_another_tenants_response_that_runs_is_not_there(settings: Settings) -> None:
    keys = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"
    two = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys=keys)
    async with serving(two, talking()) as inside, inside.client(ACME_KEY) as one, inside.client(GLOBEX_KEY) as other:
        id, stream = await begun(one)
        with pytest.raises(openai.BadRequestError) as error:
            await other.responses.create(model=MODEL, input="And?", previous_response_id=id)
        assert error.value.code == "previous_response_not_found"
        for refused in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                await refused(id)
        await stream.close()
