"""Models that speak by a chat template, over HTTP: what gpt-oss can, they can."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.background.timing import Timing
from service.backoff import Backoff
from service.settings.settings import Settings
from tests.support.markup.speaker import ASSISTANT, END, Speaker
from tests.support.oracles.event_grammar import check_stream
from tests.support.service import inside
from tests.support.service.background import ended
from tests.support.service.inside import Inside

serving = partial(inside.serving, timing=Timing(poll_seconds=0.05, engine_away=Backoff(0.01, 0.05)))

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'


def said(prompt: str) -> str:
    """What the model says, by the last words of a prompt."""
    last = prompt[: -len(ASSISTANT)].rstrip("\n").removesuffix(END).rpartition("\n")[2]
    if prompt.endswith(f"<|im_start|>tool\n21{END}\n{ASSISTANT}"):
        return f"<think>\nSo it is warm.\n</think>\n\nIt is 21 degrees.{END}"
    if last.startswith("Error"):
        return f"Sorry.{END}"
    if "weather" in last:
        return f"<think>\nI need a tool.\n</think>\n\n{CALL}{END}"
    if "both" in last:
        return f"Let me look.\n\n{CALL}\n{TIME}{END}"
    if "stranger" in last:
        return f'<tool_call>\n{{"name": "rob_bank", "arguments": {{}}}}\n</tool_call>{END}'
    return f"<think>\nThey greet me.\n</think>\n\nHello, friend \U0001f600!{END}"


@pytest.fixture
def speaker() -> Speaker:
    return Speaker("qwen3", said)


@pytest.fixture
async def service(settings: Settings, speaker: Speaker) -> AsyncIterator[Inside]:
    async with serving(settings, speaker) as service:
        yield service


@pytest.fixture
async def client(service: Inside) -> AsyncIterator[AsyncOpenAI]:
    async with service.client() as client:
        yield client


async def ask(client: AsyncOpenAI, words: Any, after: Any = None, **more: Any) -> Any:
    previous = after.id if after else None
    return await client.responses.create(model="speaker", input=words, previous_response_id=previous, **more)


async def test_reasoning_and_the_answer_are_items(client: AsyncOpenAI) -> None:
    response = await ask(client, "Hello!")
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].content[0].text == "They greet me."
    assert response.output_text == "Hello, friend \U0001f600!"
    assert response.usage.output_tokens == len("They greet me.\n\n\n\nHello, friend !") + 4
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens


async def test_its_stream_is_one_that_can_be_followed(client: AsyncOpenAI) -> None:
    stream = await ask(client, "Hello!", stream=True)
    events = [event async for event in stream]
    check_stream([event.to_dict() for event in events])
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "Hello, friend \U0001f600!"


async def test_the_next_prompt_begins_with_all_that_was_read_and_sampled(client: AsyncOpenAI, speaker: Speaker) -> None:
    first = await ask(client, "Hello!", instructions="Be kind.")
    await ask(client, "Hello again!", first, instructions="Be kind.")
    before, after = speaker.prompts
    assert after.startswith(before + said(before))
    assert after.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n")
    assert after.endswith(f"{END}\n<|im_start|>user\nHello again!{END}\n{ASSISTANT}")


async def test_a_call_and_its_output_go_round(client: AsyncOpenAI, speaker: Speaker) -> None:
    asked = await ask(client, "How is the weather?", tools=[WEATHER])
    assert [item.type for item in asked.output] == ["reasoning", "function_call"]
    call = asked.output[1]
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}')
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "21"}
    told = await ask(client, [output], asked, tools=[WEATHER])
    assert told.output_text == "It is 21 degrees."
    before, after = speaker.prompts
    assert after == before + said(before) + f"\n<|im_start|>tool\n21{END}\n{ASSISTANT}"
    messages = json.loads(speaker.transcripts[-1].messages)
    assert messages[-1] == {"role": "tool", "tool_call_id": call.call_id, "content": "21"}


async def test_several_calls_may_be_made_at_once_or_only_one(client: AsyncOpenAI) -> None:
    both = await ask(client, "Tell me both.", tools=[WEATHER])
    assert [item.type for item in both.output] == ["message", "function_call", "function_call"]
    assert json.loads(both.output[2].arguments) == {"city": "Rome", "days": 2}
    one = await ask(client, "Tell me both.", tools=[WEATHER], parallel_tool_calls=False)
    assert [item.type for item in one.output] == ["message", "function_call"]


async def test_a_call_of_nothing_declared_is_answered_and_it_goes_on(client: AsyncOpenAI, speaker: Speaker) -> None:
    response = await ask(client, "Call a stranger.", tools=[WEATHER])
    assert (response.status, response.output_text) == ("completed", "Sorry.")
    before, after = speaker.prompts
    assert after.startswith(before)
    assert "Error: rob_bank can't be called here. The tools that can be called are: get_weather." in after


async def test_marks_that_somebody_spells_are_no_marks_in_what_is_kept(client: AsyncOpenAI, speaker: Speaker) -> None:
    first = await ask(client, "Hello!")
    await ask(client, "Hello again!", first)
    kept = json.loads(speaker.transcripts[-1].messages)
    assert kept[1] == {
        "role": "assistant",
        "reasoning_content": "They greet me.",
        "content": "Hello, friend \U0001f600!",
    }


async def test_log_probabilities_are_those_of_its_own_tokens(client: AsyncOpenAI) -> None:
    response = await ask(client, "Hello!", include=["message.output_text.logprobs"], top_logprobs=1)
    shown = response.output[1].content[0].logprobs
    assert "".join(each.token for each in shown) == response.output_text
    assert shown[0].top_logprobs[0].token == "H"


async def test_what_its_template_refuses_is_the_caller_s_to_mend(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="chat template doesn't take the input: roles must alternate") as error:
        await ask(client, "refuse me")
    assert error.value.param == "input"


async def test_a_prompt_that_is_too_long_is_refused(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="context") as error:
        await ask(client, "long " * 8000)
    assert error.value.code == "context_length_exceeded"


async def test_a_tool_under_a_grammar_is_refused(client: AsyncOpenAI) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[ab]+"}
    with pytest.raises(BadRequestError, match="under a grammar"):
        await ask(client, "Hello!", tools=[{"type": "custom", "name": "letters", "format": form}])


async def test_a_custom_tool_is_called_with_its_text(settings: Settings) -> None:
    call = '<tool_call>\n{"name": "shout", "arguments": {"input": "a \\"b\\""}}\n</tool_call>'
    async with serving(settings, Speaker("qwen3", lambda _: call + END)) as service, service.client() as client:
        response = await ask(client, "Shout!", tools=[{"type": "custom", "name": "shout"}])
    assert (response.output[0].type, response.output[0].input) == ("custom_tool_call", 'a "b"')


async def test_what_is_asked_of_a_turn_constrains_it_from_its_beginning(client: AsyncOpenAI, speaker: Speaker) -> None:
    await ask(client, "How is the weather?", tools=[WEATHER], tool_choice="required")
    await ask(client, "Hello!")
    held, free = (each.sampling.structural_tag for each in speaker.generations)
    assert free is None
    assert held is not None
    assert '"get_weather' in held.replace("\\", "")


async def test_an_answer_is_checked_against_its_format(settings: Settings) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}
    answers = iter(['{"ok": true}', '{"ok": "perhaps"}'])
    speaker = Speaker("hermes", lambda _: next(answers) + END)
    async with serving(settings, speaker) as service, service.client() as client:
        assert json.loads((await ask(client, "Well?", text=form)).output_text) == {"ok": True}
        wrong = await ask(client, "Well?", text=form)
    assert (wrong.status, wrong.error.code) == ("failed", "server_error")
    assert "does not match the format" in wrong.error.message


async def test_a_prompt_that_ends_inside_of_reasoning_goes_on_there(settings: Settings) -> None:
    speaker = Speaker("qwen3", lambda _: f"Hm.\n</think>\n\nYes.{END}", thinks=True)
    async with serving(settings, speaker) as service, service.client() as client:
        response = await ask(client, "Well?")
    assert response.output[0].content[0].text == "Hm."
    assert response.output_text == "Yes."


@pytest.mark.parametrize("pieces", [1, 3, 7])
@pytest.mark.parametrize("words", ["Hello!", "How is the weather?", "Tell me both.", "Call a stranger."])
async def test_wherever_its_engine_breaks_nothing_is_said_twice(settings: Settings, words: str, pieces: int) -> None:
    whole = Speaker("qwen3", said)
    async with serving(settings, whole) as service, service.client() as client:
        expected = await ask(client, words, tools=[WEATHER])
    speaker = Speaker("qwen3", said, pieces=pieces)
    speaker.breaks_behind = [pieces * 2] * 40
    update = {"max_attempts": 100}
    async with serving(settings.model_copy(update=update), speaker) as service, service.client() as client:
        response = await ended(client, (await ask(client, words, tools=[WEATHER], background=True)).id)
    assert [_plain(item) for item in response.output] == [_plain(item) for item in expected.output]
    if pieces == 1:  # what comes with the end of a call counts, too
        assert response.usage.output_tokens == expected.usage.output_tokens
        assert response.usage.input_tokens == expected.usage.input_tokens
    assert len(speaker.generations) >= 3


def _plain(item: Any) -> dict[str, Any]:
    return {key: value for key, value in item.to_dict().items() if key not in ("id", "call_id")}
