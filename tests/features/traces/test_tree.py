"""The spans of a request, over HTTP with the official SDK: which there are, below which, and what each says."""

import openai
import pytest
from pydantic import SecretStr

from service.engine.port import EngineBroke
from service.process import Settings
from service.settings.core import ApiKey
from tests.support.engine.scripted import Die, Stall
from tests.support.engine.standin import standing_in
from tests.support.service.inside import answer, opened, scripted, serving, then, thought
from tests.support.service.process import ACME_KEY, MODEL
from tests.support.tools.server import McpServer
from tests.support.tracing.receiver import Received, Receiver
from tests.support.waiting import until

CHAT = f"chat {MODEL}"
CREATE = "POST /v1/responses"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def parts(receiver: Receiver, whole: Received) -> list[str]:
    """The names of the parts of a span, by when they began."""
    return [span.name for span in receiver.below(whole)]


async def test_a_response_is_its_request_its_prompt_its_generation_and_its_turn(
    traced: Settings, receiver: Receiver
) -> None:
    async with (
        serving(traced, scripted([[*thought("Hm."), *then(answer("Hello."))]])) as inside,
        inside.client() as client,
    ):
        response = await client.responses.create(model=MODEL, input="hi", temperature=0.5, max_output_tokens=99)
        (request,) = await receiver.until(CREATE)
    assert (request.kind, request.parent, request.service, request.failed) == ("server", "", "harmonium", False)
    assert request.facts["http.request.method"] == "POST"
    assert request.facts["http.route"] == "/v1/responses"
    assert request.facts["http.response.status_code"] == 200
    assert request.facts["gen_ai.response.id"] == response.id
    assert request.facts["gen_ai.response.status"] == "completed"
    assert parts(receiver, request) == ["prompt", CHAT, "store.append"]
    chat, usage = receiver.one(CHAT), response.usage
    assert usage is not None
    assert (chat.kind, chat.failed) == ("client", False)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "harmonium",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.id": response.id,
        "gen_ai.request.stream": False,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.reasoning.level": "medium",
        "gen_ai.output.type": "text",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.output_tokens_details.reasoning_tokens,
    }
    assert chat.facts.items() >= expected.items()
    assert 0 < chat.facts["gen_ai.response.time_to_first_chunk"] < (chat.end - chat.start) / 1e9


async def test_what_continues_a_tree_is_a_session_with_its_root_and_its_forks(
    traced: Settings, receiver: Receiver
) -> None:
    async with serving(traced, scripted([answer("ok")])) as inside, inside.client() as client:
        root = await client.responses.create(model=MODEL, input="1")
        left, right = [
            await client.responses.create(model=MODEL, input="2", previous_response_id=root.id) for _ in range(2)
        ]
        await client.responses.create(model=MODEL, input="3", previous_response_id=left.id)
        requests = await receiver.until(CREATE, 4)
        conversation = await client.conversations.create()
        await client.responses.create(model=MODEL, input="4", conversation=conversation.id)
        named = (await receiver.until(CREATE, 5))[-1]
    assert {span.facts["session.id"] for span in requests} == {root.id}
    assert {span.facts["gen_ai.conversation.id"] for span in receiver.named(CHAT)} == {root.id, conversation.id}
    assert named.facts["session.id"] == conversation.id
    previous = [span.facts.get("gen_ai.request.previous_response.id") for span in requests]
    assert previous == [None, root.id, root.id, left.id]
    assert right.id
    assert parts(receiver, requests[1]) == ["store.chain", "prompt", CHAT, "store.append"]


async def test_a_websocket_has_a_span_for_each_response(traced: Settings, receiver: Receiver) -> None:
    engine = scripted([answer("Hello.")])
    async with serving(traced, engine) as inside, inside.client() as client, client.responses.connect() as connection:
        for _ in range(2):
            await connection.response.create(model=MODEL, input="hi")
            async for event in connection:
                if event.type == "response.completed":
                    break
        first, second = await receiver.until("CREATE /v1/responses", 2)
    assert first.trace != second.trace
    assert parts(receiver, second) == ["prompt", CHAT, "store.append"]
    assert second.facts["http.request.method"] == "_OTHER"


async def test_a_clients_trace_goes_through_to_the_engine(traced: Settings, receiver: Receiver) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    async with standing_in(scripted([answer("Hello.")])) as server:
        behind = traced.model_copy(update={"engine": "vllm", "engine_url": (server.url,)})
        async with serving(behind) as inside, inside.client() as client:
            await client.responses.create(model=MODEL, input="hi", extra_headers=headers)
            (request,) = await receiver.until(CREATE)
        sent = server.generations[0].headers
    assert (request.trace, request.parent) == (TRACE, PARENT)
    chat = receiver.one(CHAT)
    version, trace, span, flags = sent["traceparent"].split("-")
    assert (version, trace, span, int(flags, 16) & 1) == ("00", TRACE, chat.id, 1)
    assert sent["tracestate"] == "vendor=1"


@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_a_clients_traceparent_says_whether_a_trace_is_kept(
    traced: Settings, receiver: Receiver, ratio: float
) -> None:
    engine = scripted([answer("Hello.")])
    async with serving(traced.model_copy(update={"traces_ratio": ratio}), engine) as inside, inside.client() as client:
        for flags in ("00", "01"):
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
            await client.responses.create(model=MODEL, input="hi", extra_headers=headers)
        await receiver.until(CREATE)
    assert len(receiver.named(CREATE)) == 1
    assert engine.generations[0].trace == (("traceparent", f"00-{TRACE}-{PARENT}-00"),)


async def test_getting_a_response_is_a_fetch(traced: Settings, receiver: Receiver) -> None:
    async with serving(traced, scripted([answer("Hello.")])) as inside, inside.client() as client:
        response = await client.responses.create(model=MODEL, input="hi")
        await client.responses.retrieve(response.id)
        (request,) = await receiver.until("GET /v1/responses/{response_id}")
        fetch = receiver.one("fetch_response")
    assert parts(receiver, request) == ["fetch_response"]
    assert fetch.facts["gen_ai.operation.name"] == "fetch_response"
    assert fetch.facts["gen_ai.response.id"] == response.id
    assert fetch.facts["gen_ai.response.status"] == "completed"


async def test_calls_of_tools_are_parts_of_their_response(
    settings: Settings, receiver: Receiver, traced: Settings, tools: McpServer
) -> None:
    server = {"type": "mcp", "server_label": "maths", "server_url": tools.url, "require_approval": "never"}
    async with serving(traced.model_copy(update={"mcp_allow": (tools.url,)})) as inside, inside.client() as client:
        words = "What is 2 plus 40? Use the add tool."
        response = await client.responses.create(model=MODEL, input=words, tools=[server])  # type: ignore[list-item]
        (request,) = await receiver.until(CREATE)
    (call,) = [item for item in response.output if item.type == "mcp_call"]
    span = receiver.one("execute_tool add")
    assert parts(receiver, request) == ["prompt", CHAT, CHAT, "execute_tool add", CHAT, "store.append"]
    assert span.facts["gen_ai.tool.name"] == "add"
    assert span.facts["gen_ai.tool.call.id"] == call.id
    assert span.facts["gen_ai.operation.name"] == "execute_tool"
    assert response.usage is not None
    for kind in ("input_tokens", "output_tokens"):
        told = [span.facts.get(f"gen_ai.usage.{kind}", 0) for span in receiver.named(CHAT)]
        assert sum(told) == getattr(response.usage, kind)


async def test_an_engine_that_fails_is_the_error_of_its_span_and_of_the_request(
    traced: Settings, receiver: Receiver
) -> None:
    engine = scripted([Die(EngineBroke("secret words"))])
    async with serving(traced, engine) as inside, inside.client() as client:
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model=MODEL, input="hi")
        (request,) = await receiver.until(CREATE)
    chat = receiver.one(CHAT)
    assert (chat.failed, chat.facts["error.type"], chat.words) == (True, "EngineBroke", "")
    assert (request.failed, request.words, request.facts["http.response.status_code"]) == (True, "", 503)
    assert b"secret words" not in receiver.text


async def test_a_request_that_is_refused_is_its_own_fault(traced: Settings, receiver: Receiver) -> None:
    async with serving(traced, scripted([])) as inside, inside.client() as client:
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="unknown", input="hi")
        (request,) = await receiver.until(CREATE)
    assert (request.failed, request.facts["error.type"]) == (False, "model_not_found")
    assert request.facts["http.response.status_code"] == 404


async def test_a_client_that_disconnects_ends_all_spans(traced: Settings, receiver: Receiver) -> None:
    engine = scripted([opened("Hel"), Stall()])
    async with serving(traced, engine) as inside, inside.http() as http:
        body = {"model": MODEL, "input": "hi", "stream": True}
        async with http.stream("POST", "/v1/responses", json=body) as answered:
            await anext(answered.aiter_bytes())
            await until(lambda: len(engine.generations) == 1)
        (request,) = await receiver.until(CREATE)
    assert (request.failed, request.facts["error.type"]) == (False, "client_gone")
    assert (receiver.one(CHAT).failed, receiver.one(CHAT).facts["error.type"]) == (False, "cancelled")
    assert request.facts["gen_ai.response.status"] == "cancelled"


async def test_who_may_not_enter_has_no_span_and_neither_have_probes(traced: Settings, receiver: Receiver) -> None:
    keyed = traced.model_copy(update={"api_keys": (ApiKey("acme", SecretStr(ACME_KEY)),)})
    async with serving(keyed, scripted([answer("Hello.")])) as inside, inside.client(ACME_KEY) as client:
        async with inside.http() as http:
            for path in ("/health", "/ready", "/"):
                assert (await http.get(path)).status_code == 200
            assert (await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})).status_code == 401
        await client.responses.create(model=MODEL, input="hi")
        await receiver.until(CREATE)
    assert len(receiver.named(CREATE)) == 1
    assert {span.name for span in receiver.spans} == {CREATE, "prompt", CHAT, "store.append"}
    assert b"acme" not in receiver.text


async def test_requests_that_are_passed_on_have_a_span_of_the_engine(traced: Settings, receiver: Receiver) -> None:
    async with standing_in(scripted([answer("Hello.")])) as server:
        behind = traced.model_copy(update={"engine": "vllm", "engine_url": (server.url,)})
        async with serving(behind) as inside, inside.client() as client:
            chat = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
            (request,) = await receiver.until("POST /v1/chat/completions")
        sent = next(asked for asked in server.asked if asked.path == "/v1/chat/completions").headers["traceparent"]
    (asked,) = receiver.below(request)
    assert (asked.name, asked.kind, asked.facts["gen_ai.operation.name"]) == (CHAT, "client", "chat")
    assert chat.usage is not None
    assert asked.facts["gen_ai.usage.input_tokens"] == chat.usage.prompt_tokens
    assert sent.split("-")[2] == asked.id
