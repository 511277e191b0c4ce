"""What the reference implementations of Responses over Harmony do, and what they get wrong: a short test of each.

behaviour                             in depth
recipients and channels               tests/responses/output/test_recipients.py, test_items.py, test_segments.py
items in part                         tests/responses/output/test_fold.py, tests/background/test_in_background.py
previous_input_messages               tests/api/input/test_previous.py, tests/harmony/test_harmony_messages.py
two continuations at once             tests/responses/test_concurrency.py, tests/store
what is not inherited                 tests/responses/test_continue.py, tests/responses/prompt/test_conversations.py
commentary                            tests/responses/test_reasoning.py, tests/responses/prompt/test_conversations.py
usage of turns                        tests/responses/test_next_step.py
a client that goes away               tests/web/test_disconnect.py
a store that is off                   tests/web/test_bad_input.py, tests/background/test_in_background.py
"""

import asyncio
from typing import Any

import openai
import pytest

from service.engine.port import Finish
from service.settings.settings import Settings
from tests.support.engine.scripted import FinishWith, Stall
from tests.support.responses.samples import harmony
from tests.support.service.background import changed, opened_stream, retrieved
from tests.support.service.background import streamed as followed
from tests.support.service.inside import answer, called, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL, raw_request
from tests.support.service.seen import made, prompts, streamed
from tests.support.store.counted import usage
from tests.support.waiting import until

STOP_SECONDS = 0.1

Json = dict[str, Any]
LOOK: Any = {"type": "function", "name": "look", "parameters": None, "strict": False}
NOTE: Any = {"type": "custom", "name": "note"}
TOOLS = [LOOK, NOTE]

MESSAGES: dict[str, Json] = {
    "<|channel|>analysis": {"type": "reasoning"},
    "<|channel|>commentary": {"type": "message", "phase": "commentary"},
    "<|channel|>final": {"type": "message", "phase": "final_answer"},
    "<|channel|>commentary to=functions.look": {"type": "function_call", "name": "look"},
    "<|channel|>analysis to=functions.look": {"type": "function_call", "name": "look"},
    " to=look<|channel|>commentary": {"type": "function_call", "name": "look"},
    "<|channel|>commentary to=functions.note": {"type": "custom_tool_call", "name": "note"},
    "<|channel|>analysis to=python": {"type": "code_interpreter_call", "status": "failed"},
    "<|channel|>commentary to=python": {"type": "code_interpreter_call", "status": "failed"},
    "<|channel|>analysis to=browser.search": {"type": "web_search_call", "status": "failed"},
    "<|channel|>commentary to=browser.open": {"type": "web_search_call", "status": "failed"},
    "<|channel|>analysis to=container.exec": {"type": "mcp_call", "server_label": "container", "name": "exec"},
    "<|channel|>commentary to=mcp.docs.search": {"type": "mcp_call", "server_label": "docs", "name": "search"},
    "<|channel|>commentary to=docs.search": {"type": "mcp_call", "server_label": "docs", "name": "search"},
    "<|channel|>commentary to=docs": {"type": "mcp_call", "server_label": "docs", "name": "docs"},
    "<|channel|>commentary to=functions.moon": {"type": "mcp_call", "server_label": "functions", "name": "moon"},
}
CONTENT = '<|message|>{"input":"so'


async def test_a_message_of_every_recipient_and_channel_becomes_an_item(settings: Settings) -> None:
    async with serving(settings, scripted(*_with_answers())) as inside:
        for item in MESSAGES.values():
            found = await made(inside, input="Go.", tools=TOOLS, parallel_tool_calls=False)
            first = found["output"][0]
            assert found["status"] == "completed"
            assert {name: first.get(name) for name in item} == item
            foreign = first.get("status") == "failed"
            assert [each["type"] for each in found["output"][1:]] == ["message"] * foreign


def _with_answers() -> list[Any]:
    """The script of each message; who called what isn't here is told so, and answers."""
    scripts: list[Any] = []
    for header, item in MESSAGES.items():
        scripts.append([harmony(f'{header}{CONTENT}"}}' + ("<|call|>" if " to=" in header else "<|end|>"))])
        if item["type"] in ("code_interpreter_call", "web_search_call", "mcp_call"):
            scripts.append([answer("Fine.")])
    return scripts


async def test_an_item_is_there_in_part_while_it_is_sampled_and_stays_so_where_that_stops(settings: Settings) -> None:
    going = [asyncio.Event() for _ in MESSAGES]
    engine = scripted(
        *(
            [harmony(header + CONTENT), Stall(go), FinishWith(Finish.LENGTH)]
            for header, go in zip(MESSAGES, going, strict=True)
        )
    )
    async with serving(settings, engine) as inside, inside.client() as client:
        for item, go in zip(MESSAGES.values(), going, strict=True):
            async with opened_stream(client, tools=TOOLS) as (id, _):
                amid = await until(lambda id=id: retrieved(inside, id), 10, wanted=lambda found: found.json()["output"])
                (part,) = amid.json()["output"]
                go.set()
                end = (await followed(inside, id))[-1]
            (cut,) = end["response"]["output"]
            assert end["type"] == "response.incomplete"
            assert (part["type"], part["status"], cut["status"]) == (item["type"], "in_progress", "incomplete")
            assert part["id"] == cut["id"]


async def test_previous_input_messages_in_harmony_s_form_and_in_chat_s_are_the_store_s_prompt(
    settings: Settings,
) -> None:
    engine = scripted([[*thought("A greeting."), *then(answer("Ahoy."))]])
    shown: Any = {"enable_response_messages": True}
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning": "A greeting.", "content": "Ahoy."}]
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Hi", **shown)
        await made(inside, input="And?", previous_response_id=first["id"])
        for history in ([*first["input_messages"], *first["output_messages"]], chat):
            await made(inside, input="And?", previous_input_messages=history)

    _, stored, harmony_form, chat_form = [list(generation.prompt) for generation in engine.generations]
    assert stored == harmony_form == chat_form


async def test_of_two_continuations_at_the_same_time_neither_sees_the_other(settings: Settings) -> None:
    go = asyncio.Event()
    engine = scripted([answer("Ahoy.")], [opened("Both"), Stall(go), answer(" of us.")[3:]])
    async with serving(settings, engine) as inside:
        parent = await made(inside, input="Hi")
        bodies = [{"input": name, "previous_response_id": parent["id"]} for name in ("left", "right")]
        racing = [asyncio.create_task(made(inside, **body)) for body in bodies]
        await until(lambda: engine.running == 2)
        go.set()
        children = await asyncio.gather(*racing)
        for name, child in zip(("left", "right"), children, strict=True):
            assert child["output"][0]["content"][0]["text"] == "Both of us."
            await made(inside, input="Who?", previous_response_id=child["id"])
            last = prompts(engine)[-1]
            assert [last.count(f"<|message|>{each}<|end|>") for each in ("left", "right", "Hi")] == [
                name == "left",
                name == "right",
                1,
            ]


async def test_tools_and_instructions_are_not_inherited(settings: Settings) -> None:
    engine = scripted([answer("Ahoy.")], [called("look", "{}")], [answer("I can't.")])
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Hi", tools=TOOLS, instructions="Talk like a pirate.", tool_choice="none")
        second = await made(inside, input="And?", previous_response_id=first["id"])

    assert (second["tools"], second["instructions"], second["tool_choice"]) == ([], None, "auto")
    assert "pirate" not in prompts(engine)[1]
    assert "namespace functions" not in prompts(engine)[1]
    assert [(item["type"], item["status"]) for item in second["output"]] == [
        ("mcp_call", "failed"),
        ("message", "completed"),
    ]


async def test_commentary_is_kept(settings: Settings) -> None:
    preamble = "<|channel|>commentary<|message|>I look around.<|end|>"
    engine = scripted([harmony(preamble) + then(called("look", "{}"))], [answer("Trees.")])
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Look.", tools=TOOLS, parallel_tool_calls=False)
        output = [{"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "trees"}]
        second = await made(inside, input=output, tools=TOOLS, previous_response_id=first["id"])
        await made(inside, input="Sure?", tools=TOOLS, previous_response_id=second["id"])

    assert [prompt.count(preamble) for prompt in prompts(engine)] == [0, 1, 1]
    assert [item["type"] for item in first["output"]] == ["message", "function_call"]


async def test_usage_is_told_for_each_turn(settings: Settings) -> None:
    stranger, last = called("rhubarb", "{}"), answer("I can't.")
    engine = scripted([stranger[:-1], stranger[-1:]], [last, FinishWith(Finish.STOP, cached_tokens=9)])
    async with serving(settings, engine) as inside:
        usage = (await made(inside, input="Hi", enable_response_messages=True))["usage"]

    prompted = [len(generation.prompt) for generation in engine.generations]
    told = prompted[1] - prompted[0] - len(stranger)
    put_in, put_out = usage["input_tokens_details"], usage["output_tokens_details"]
    assert put_in["input_tokens_per_turn"] == prompted
    assert put_out["output_tokens_per_turn"] == [len(stranger), len(last)]
    assert put_out["tool_output_tokens_per_turn"] == [0, told]
    assert put_out["tool_output_tokens"] == told
    assert len(put_in["cached_tokens_per_turn"]) == 2
    assert usage["total_tokens"] == sum(prompted) + len(stranger) + len(last)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnect_is_found_in_time_also_before_the_first_token(settings: Settings, stream: bool) -> None:
    engine = scripted([Stall()])
    async with serving(settings, engine) as inside:
        _, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        writer.write(raw_request(stream=stream))
        await until(lambda: engine.running == 1)
        gone = asyncio.get_running_loop().time()
        writer.transport.abort()
        await until(lambda: engine.aborted)
    assert next(iter(engine.aborted.values())) - gone < STOP_SECONDS


async def test_a_store_that_is_switched_off_keeps_nothing_and_everything_else_works(settings: Settings) -> None:
    """Its 400s: test_bad_input.py::test_a_service_that_stores_nothing_says_so."""
    async with (
        serving(changed(settings, store=False), scripted([answer("Ahoy.")])) as inside,
        inside.client() as client,
    ):
        assert (await streamed(inside, input="Hi"))[-1]["response"]["store"] is False
        found = await client.responses.create(model=MODEL, input="Hi")
        assert found.output_text == "Ahoy."
        for ask in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                await ask(found.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.input_items.list(found.id)
        assert (await usage(inside.store)).responses == 0
