"""Calls of the caller's tools over HTTP: what the engine is held to, and what a client gets and sends back."""

from typing import Any

import msgspec
import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import Response

from service.harmony.tokens import CALL, MESSAGE
from service.process import Settings
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.inside import CARD, answer, called, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import addressed, made, prompts, streamed, tags

CITY: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": False}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": CITY, "strict": False}
NOTE: Any = {"type": "custom", "name": "note", "description": "Takes a note."}
BOTH = [*called("weather", '{"city":"Paris"}'), *then(called("clock", '{"city":"London"}'))]


def output(call: Any, text: Any) -> Any:
    kind = "custom_tool_call_output" if call["type"] == "custom_tool_call" else "function_call_output"
    return {"type": kind, "call_id": call["call_id"], "output": text}


async def go_on(client: AsyncOpenAI, after: str, *items: Any, tools: Any) -> Response:
    return await client.responses.create(model=MODEL, previous_response_id=after, input=[*items], tools=tools)


async def test_calls_side_by_side_are_answered_in_any_order_by_text_or_parts(settings: Settings) -> None:
    engine = scripted([[*thought("Both."), *then(BOTH)]], [answer("Rain at noon.")])
    tools = [WEATHER, CLOCK]
    async with serving(settings, engine) as inside, inside.client() as client:
        first = await made(inside, input="Paris and London?", tools=tools)
        _, weather, clock = first["output"]
        parts = [{"type": "input_text", "text": "It is "}, {"type": "input_text", "text": "noon."}]
        hurry = {"role": "user", "content": "Hurry."}
        last = await go_on(client, first["id"], output(clock, parts), hurry, output(weather, "Rain."), tools=tools)

    assert [(item["name"], item["arguments"]) for item in (weather, clock)] == [
        ("weather", '{"city":"Paris"}'),
        ("clock", '{"city":"London"}'),
    ]
    assert weather["call_id"] != clock["call_id"]
    assert CALL not in engine.generations[0].sampling.stop_ids
    assert last.output_text == "Rain at noon."
    told = prompts(engine)[-1].partition("Paris and London?")[2]
    assert "functions.clock to=assistant<|channel|>commentary<|message|>It is noon.<|end|>" in told
    assert "functions.weather to=assistant<|channel|>commentary<|message|>Rain.<|end|>" in told
    assert told.index("It is noon.") < told.index("Hurry.") < told.index("Rain.")


@pytest.mark.parametrize(("strict", "asks"), [({"strict": True}, 2), ({}, 2), ({"strict": False}, 1)])
async def test_a_strict_function_s_arguments_are_asked_for_by_a_tag(settings: Settings, strict: Any, asks: int) -> None:
    tool = {"type": "function", "name": "weather", "parameters": CITY, **strict}
    engine = scripted([[*thought("Paris."), *then(called("weather", '{"city":"Paris"}'))]])
    async with serving(settings, engine) as inside:
        found = await made(inside, input="Paris?", tools=[tool], parallel_tool_calls=False)

    assert found["output"][-1]["arguments"] == '{"city":"Paris"}'
    assert found["tools"][0]["strict"] is (asks == 2)
    assert len(engine.generations) == asks
    assert tags(engine)[0] is None
    if asks == 2:
        last = engine.generations[-1]
        assert (last.prompt[-1], tags(engine)[-1]["type"]) == (MESSAGE, "json_schema")
        assert tags(engine)[-1]["json_schema"]["properties"] == CITY["properties"]


ALL = {"functions.weather", "functions.clock", "functions.note"}
CLOCK_ALONE: Any = [{"type": "function", "name": "clock"}]
CHOICES: dict[str, tuple[Any, set[str] | None]] = {
    "auto": ("auto", None),
    "none": ("none", {"final"}),
    "required": ("required", ALL),
    "a function": ({"type": "function", "name": "weather"}, {"functions.weather"}),
    "a custom tool": ({"type": "custom", "name": "note"}, {"functions.note"}),
    "some allowed": ({"type": "allowed_tools", "mode": "auto", "tools": CLOCK_ALONE}, {"functions.clock", "final"}),
    "some required": ({"type": "allowed_tools", "mode": "required", "tools": CLOCK_ALONE}, {"functions.clock"}),
}


async def test_a_choice_is_held_by_the_engine_echoed_and_changes_nothing_in_the_prompt(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        found = [
            await made(inside, input="Hi", tools=[WEATHER, CLOCK, NOTE], tool_choice=choice)
            for choice, _ in CHOICES.values()
        ]

    assert [response["tool_choice"] for response in found] == [choice for choice, _ in CHOICES.values()]
    assert [tag and addressed(tag) for tag in tags(engine)] == [allowed for _, allowed in CHOICES.values()]
    assert len(set(prompts(engine))) == 1


async def test_a_custom_tool_s_text_comes_out_of_its_wrapping_and_goes_back_in(settings: Settings) -> None:
    engine = scripted([called("note", '{"input":"Tea\\nand \\u00e9clairs"}')], [answer("Noted.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        events = await streamed(inside, input="Note it.", tools=[NOTE])
        call = events[-1]["response"]["output"][0]
        stored = await go_on(client, events[-1]["response"]["id"], output(call, "ok"), tools=[NOTE])
        sent: Any = [{"role": "user", "content": "Note it."}, call, output(call, "ok")]
        await client.responses.create(model=MODEL, input=sent, tools=[NOTE])

    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == call["input"] == "Tea\nand éclairs"
    assert stored.output_text == "Noted."
    kept, replayed = prompts(engine)[-2:]
    assert '{"input":"Tea\\nand \\u00e9clairs"}<|call|>' in kept
    assert '{"input":"Tea\\nand éclairs"}<|call|>' in replayed


# --- tools that aren't here ---


@pytest.mark.parametrize("syntax", ["lark", "regex"])
async def test_a_grammar_that_no_server_enforces_is_refused(settings: Settings, syntax: str) -> None:
    definition = 'start: "a"' if syntax == "lark" else "a"
    letter = {**NOTE, "name": "letter", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
    engine = ScriptedEngine(msgspec.structs.replace(CARD, constrains=False), [answer("Noted.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        await client.responses.create(model=MODEL, input="hi", tools=[NOTE])
        with pytest.raises(BadRequestError, match=r"letter .* holds the model") as refused:
            await client.responses.create(model=MODEL, input="hi", tools=[NOTE, letter])
    assert (refused.value.param, refused.value.code) == ("tools", "unsupported_parameter")
    assert len(engine.generations) == 1


async def test_hosted_tools_are_echoed_without_secrets_and_the_prompt_is_as_without_them(settings: Settings) -> None:
    """The header that names them: test_dialect.py::test_hosted_tools_are_named_in_every_kind_of_answer."""
    hosted = [{"type": "web_search"}, {"type": "mcp", "server_label": "docs", "server_url": "https://x", **SECRET}]
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        found = await made(inside, input="Hi", tools=[*hosted, WEATHER])
        await made(inside, input="Hi", tools=[WEATHER])

    assert [tool["type"] for tool in found["tools"]] == ["web_search", "mcp", "function"]
    assert "s3cret" not in str(found)
    assert len(set(prompts(engine))) == 1


SECRET = {"authorization": "s3cret", "headers": {"x-key": "s3cret"}}


async def test_a_model_that_calls_what_is_not_here_is_told_once_and_fails_the_second_time(settings: Settings) -> None:
    stranger = [*thought("Rhubarb."), *then(called("rhubarb", '{"stalks":2}'))]
    engine = scripted([stranger], [answer("I can't.")], [stranger], [called("rhubarb", "{}")])
    async with serving(settings, engine) as inside:
        good = await made(inside, input="Go.", tools=[WEATHER])
        bad = await made(inside, input="Go.", tools=[WEATHER])

    assert [(item["type"], item["status"]) for item in good["output"]] == [
        ("reasoning", "completed"),
        ("mcp_call", "failed"),
        ("message", "completed"),
    ]
    assert good["status"] == "completed"
    told = (
        "functions.rhubarb to=assistant<|channel|>commentary<|message|>Error: functions.rhubarb can't be called here."
    )
    assert [prompt.count(told) for prompt in prompts(engine)] == [0, 1, 0, 1]
    assert "functions.weather" in prompts(engine)[1].partition(told)[2]
    assert bad["status"] == "failed"
    assert [item["type"] for item in bad["output"]] == ["reasoning", "mcp_call", "mcp_call"]
    assert "functions.rhubarb" in bad["error"]["message"]
    assert good["usage"]["input_tokens"] == sum(len(each.prompt) for each in engine.generations[:2])


async def test_a_call_whose_arguments_were_to_be_encrypted_says_that_none_is(settings: Settings) -> None:
    message: Any = {"type": "object", "properties": {"message": {"type": "string", "encrypted": True}}}
    spawn: Any = {"type": "function", "name": "spawn_agent", "parameters": message, "strict": False}
    calls = [*called("spawn_agent", '{"message":"Look."}'), *then(called("clock", '{"city":"London"}'))]
    async with serving(settings, scripted([calls])) as inside:
        events = await streamed(inside, input="Go.", tools=[spawn, CLOCK])
    shown = [event["item"] for event in events if "item" in event]

    assert [item.get("encrypted_function_args") for item in events[-1]["response"]["output"]] == [[], None]
    assert [item["encrypted_function_args"] for item in shown if item["name"] == "spawn_agent"] == [[], []]
