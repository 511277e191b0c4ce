"""What was written: it is in no span unless a setting wants it, and then within a bound."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.features.traces.tracing import TEXT_BYTES, content_facts, shorten
from service.process import Settings
from tests.support.service.background import ended, submitted
from tests.support.service.inside import answer, called, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.tools.server import McpServer
from tests.support.tracing.receiver import Receiver

CANARY = "marmalade"
CHAT = f"chat {MODEL}"
CREATE = "POST /v1/responses"
FUNCTION: Any = {
    "type": "function",
    "name": "look_up",
    "description": CANARY,
    "strict": False,
    "parameters": {"type": "object", "properties": {CANARY: {"type": "string", "description": CANARY}}},
}


def mcp(tools: McpServer) -> Any:
    """The declaration of a server of tools."""
    members = {"headers": {"x-key": CANARY}, "server_description": CANARY, "require_approval": "never"}
    return {"type": "mcp", "server_label": "maths", "server_url": tools.url, **members}


async def everything(settings: Settings, tools: McpServer, receiver: Receiver) -> None:
    """Requests of every kind, with the canary wherever somebody may write."""
    call = [*then(called("look_up", json.dumps({CANARY: CANARY})))]
    engine = scripted([[*thought(CANARY), *call]], [answer(f"It is {CANARY}.")])
    given: dict[str, Any] = {
        "instructions": CANARY,
        "metadata": {CANARY: CANARY},
        "safety_identifier": CANARY,
        "prompt_cache_key": CANARY,
        "tools": [FUNCTION],
    }
    async with serving(settings.model_copy(update={"mcp_allow": (tools.url,)}), engine) as inside:
        async with inside.client() as client:
            first = await client.responses.create(model=MODEL, input=CANARY, **given)
            output: Any = [{"type": "function_call_output", "call_id": first.output[-1].call_id, "output": CANARY}]  # type: ignore[union-attr]
            await client.responses.create(model=MODEL, input=output, previous_response_id=first.id, **given)
            await ended(client, (await submitted(client, CANARY, tools=[mcp(tools)])).id)
            async for _ in await client.responses.create(model=MODEL, input=CANARY, stream=True, **given):
                pass
            async with inside.http() as http:
                headers = {"authorization": f"Bearer {CANARY}", "x-client-request-id": CANARY}
                for path in (f"/v1/{CANARY}", f"/v1/responses/{CANARY}", f"/v1/responses?{CANARY}={CANARY}"):
                    await http.get(path, headers=headers)
                await http.post("/v1/responses", json={"model": CANARY, "input": CANARY, CANARY: 1})
        await receiver.until("attempt")


async def test_no_span_has_what_anybody_wrote(traced: Settings, receiver: Receiver, tools: McpServer) -> None:
    await everything(traced, tools, receiver)
    assert len(receiver.named(CREATE)) >= 4
    assert CANARY.encode() not in receiver.text


async def test_spans_show_what_was_written_where_a_setting_wants_that(
    traced: Settings, receiver: Receiver, tools: McpServer
) -> None:
    await everything(traced.model_copy(update={"traces_contents": True}), tools, receiver)
    first = receiver.named(CHAT)[0].facts
    (asked,) = json.loads(first["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": CANARY}]}
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": CANARY}]
    thought_, call = json.loads(first["gen_ai.output.messages"])
    assert thought_["parts"] == [{"type": "reasoning", "content": CANARY}]
    (part,) = call["parts"]
    assert (part["type"], part["name"], json.loads(part["arguments"])) == ("tool_call", "look_up", {CANARY: CANARY})
    (request, *_) = receiver.named(CREATE)
    assert json.loads(request.facts["input.value"]) == [asked]
    second = receiver.named(CREATE)[1].facts
    (response,) = json.loads(second["input.value"])[0]["parts"]
    assert (response["type"], response["response"]) == ("tool_call_response", CANARY)
    for secret in (f"Bearer {CANARY}", '"x-key"'):
        assert secret.encode() not in receiver.text


async def test_what_is_shown_is_bounded(traced: Settings, receiver: Receiver) -> None:
    settings = traced.model_copy(update={"traces_contents": True})
    async with serving(settings, scripted([answer("long " * 4000)])) as inside, inside.client() as client:
        await client.responses.create(model=MODEL, input="word " * 5000, instructions="rule " * 5000)
        (request,) = await receiver.until(CREATE)
    assert all(len(fact) < 2 * TEXT_BYTES for fact in request.facts.values() if isinstance(fact, str))
    assert request.facts["output.value"].endswith('…"}]}]')


_TEXT = st.text(max_size=300)
_PARTS = st.lists(st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text"]), "text": _TEXT}))
_ITEMS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("message"), "role": st.just("user"), "content": _TEXT | _PARTS}),
        st.fixed_dictionaries({"type": st.just("reasoning"), "summary": _PARTS}),
        st.fixed_dictionaries({"type": st.just("function_call"), "name": _TEXT, "arguments": _TEXT, "call_id": _TEXT}),
        st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": _TEXT, "output": _TEXT | _PARTS}),
        st.fixed_dictionaries({"type": st.just("compaction"), "encrypted_content": _TEXT}),
    )
)


@given(_ITEMS, st.integers(0, 1000))
def test_items_of_any_kind_are_shown_as_json_of_messages(items: list[dict[str, Any]], limit: int) -> None:
    facts = content_facts("input", msgspec.json.encode(items), limit)
    messages = json.loads(str(facts["gen_ai.input.messages"]))
    assert len(messages) <= min(len(items), limit // 64)
    assert all(
        part["type"] in ("text", "reasoning", "tool_call", "tool_call_response")
        for m in messages
        for part in m["parts"]
    )


@given(st.text(), st.integers(0, 200))
def test_a_text_is_cut_between_characters(text: str, limit: int) -> None:
    cut = shorten(text, limit)
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]) and len(cut[:-1].encode()) <= limit)
