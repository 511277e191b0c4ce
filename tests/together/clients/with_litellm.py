"""LiteLLM: its Responses API, and its bridge from chat completions to ours."""

import os

import litellm

MODEL = f"openai/{os.environ['MODEL']}"
BRIDGE = f"openai/responses/{os.environ['MODEL']}"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": CITY}
ASKED = "What is the weather in Paris and London? Use the tool."
litellm.suppress_debug_info = True
litellm.num_retries = 0


def test_an_answer_is_streamed():
    events = [
        str(getattr(event.type, "value", event.type))
        for event in litellm.responses(model=MODEL, input="Count from 1 to 5.", stream=True)
    ]
    assert "response.output_text.delta" in events
    assert events[-1] == "response.completed"


def test_parallel_calls_are_answered_by_previous_response_id():
    first = litellm.responses(model=MODEL, input=ASKED, tools=[WEATHER])
    calls = [item for item in first.output if item.type == "function_call"]
    assert len(calls) == 2
    said = [{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"} for call in calls]
    second = litellm.responses(model=MODEL, previous_response_id=first.id, input=said, tools=[WEATHER])
    assert "18 degrees" in second.output[-1].content[0].text


def test_a_response_is_fetched_listed_and_deleted():
    made = litellm.responses(model=MODEL, input="Say hello.")
    there = {"response_id": made.id, "custom_llm_provider": "openai"}
    assert litellm.get_responses(**there).status == "completed"
    assert litellm.list_input_items(**there)["data"]
    assert litellm.delete_responses(**there).deleted


def test_a_chat_completion_by_the_bridge_calls_tools_and_is_answered():
    tools = [{"type": "function", "function": {key: WEATHER[key] for key in ("name", "description", "parameters")}}]
    messages = [{"role": "user", "content": ASKED}]
    called = litellm.completion(model=BRIDGE, messages=messages, tools=tools).choices[0].message
    assert len(called.tool_calls) == 2
    said = [{"role": "tool", "tool_call_id": call.id, "content": "18 degrees"} for call in called.tool_calls]
    answer = litellm.completion(model=BRIDGE, messages=[*messages, called, *said], tools=tools)
    assert "18 degrees" in answer.choices[0].message.content


def test_a_chat_completion_by_the_bridge_keeps_to_a_schema():
    schema = {"name": "city", "strict": True, "schema": CITY | {"additionalProperties": False}}
    wanted = {"type": "json_schema", "json_schema": schema}
    messages = [{"role": "user", "content": "Tell me of Paris."}]
    answer = litellm.completion(model=BRIDGE, messages=messages, response_format=wanted)
    assert '"city"' in answer.choices[0].message.content
