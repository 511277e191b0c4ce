"""Models that speak by a chat template, over HTTP: what their prompts are made of, and what they can't.

What each of them can, whatever its markup, is in the conformance suite of markups.
"""

import itertools
import json
import re
from functools import lru_cache, partial
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.api.ids import response_of
from service.process import Settings
from service.responses.output.reading import READ
from tests.support.markup.speaker import ASSISTANT, END, Speaker, encoded
from tests.support.service.inside import serving
from tests.support.service.process import MODEL

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


def said(prompt: str) -> str:
    """What the model says, by the last words of a prompt."""
    last = prompt[: -len(ASSISTANT)].rstrip("\n").removesuffix(END).rpartition("\n")[2]
    if prompt.endswith(f"<|im_start|>tool\n21{END}\n{ASSISTANT}"):
        return f"<think>\nSo it is warm.\n</think>\n\nIt is 21 degrees.{END}"
    if "weather" in last:
        return f"<think>\nI need a tool.\n</think>\n\n{CALL}{END}"
    return f"<think>\nThey greet me.\n</think>\n\nHello, friend \U0001f600!{END}"


@pytest.fixture
def speaker() -> Speaker:
    return Speaker("qwen3", said)


async def ask(client: AsyncOpenAI, words: Any, after: Any = None, **more: Any) -> Any:
    previous = after.id if after else None
    return await client.responses.create(model="speaker", input=words, previous_response_id=previous, **more)


async def test_the_next_prompt_begins_with_all_that_was_read_and_sampled(client: AsyncOpenAI, speaker: Speaker) -> None:
    first = await ask(client, "Hello!", instructions="Be kind.")
    await ask(client, "Hello again!", first, instructions="Be kind.")
    before, after = speaker.prompts
    assert after.startswith(before + said(before))
    assert after.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n")
    assert after.endswith(f"{END}\n<|im_start|>user\nHello again!{END}\n{ASSISTANT}")


async def test_a_chat_completion_goes_on_from_what_was_read_and_sampled(settings: Settings, speaker: Speaker) -> None:
    remembering = settings.model_copy(update={"chats": "remember"})
    tool: Any = {"type": "function", "function": {key: value for key, value in WEATHER.items() if key != "type"}}
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    async with serving(remembering, speaker) as service, service.client() as client:
        create: Any = partial(client.chat.completions.create, model="speaker", tools=[tool])
        message = (await create(messages=asked)).choices[0].message
        output = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21"}
        sent_back = message.model_dump(exclude={"reasoning_content"})
        second = await create(messages=[*asked, sent_back, output])
    assert (message.content, message.reasoning_content) == (None, "I need a tool.")
    assert second.choices[0].message.content == "It is 21 degrees."
    before, after = speaker.prompts
    assert after.startswith(before + said(before))


async def test_what_its_template_refuses_is_the_caller_s_to_mend(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="chat template rejects the input: roles must alternate") as error:
        await ask(client, "refuse me")
    assert error.value.param == "input"


async def test_a_template_has_the_variables_that_a_request_gives_it(client: AsyncOpenAI, speaker: Speaker) -> None:
    first = await ask(client, "Hello!", extra_body={"chat_template_kwargs": {"enable_thinking": False, "style": "dry"}})
    await ask(client, "Hello!", first)
    wished, usual = (json.loads(each.options) for each in speaker.transcripts)
    assert wished == usual | {"enable_thinking": False, "style": "dry"}
    assert usual == {"enable_thinking": True, "thinking": True, "reasoning_effort": "medium"}


async def test_earlier_reasoning_comes_with_the_option_that_keeps_it_unless_the_request_says_otherwise(
    settings: Settings,
) -> None:
    speaker = Speaker("qwen3", said, keeps={"clear_thinking": False})
    async with serving(settings, speaker) as service, service.client() as client:
        first = await ask(client, "What is the weather in Paris?", tools=[WEATHER])
        output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "21"}
        await ask(client, [output], first, tools=[WEATHER])
        await ask(
            client, [output], first, tools=[WEATHER], extra_body={"chat_template_kwargs": {"clear_thinking": True}}
        )
    options = [json.loads(each.options).get("clear_thinking") for each in speaker.transcripts]
    assert options == [None, False, True]


async def test_an_effort_is_said_in_the_words_of_the_models_family(settings: Settings) -> None:
    speaker = Speaker("deepseek-v4.1", said)
    async with serving(settings, speaker) as service, service.client() as client:
        for effort in ("minimal", "medium", "high"):
            await ask(client, "Hello!", reasoning={"effort": effort})
    assert [json.loads(each.options)["reasoning_effort"] for each in speaker.transcripts] == ["low", 62, "high"]


async def test_a_model_without_a_template_says_where_its_effort_is(settings: Settings) -> None:
    async with serving(settings) as service, service.client() as client:
        for harmless in ({}, None):
            await client.responses.create(model=MODEL, input="Hi", extra_body={"chat_template_kwargs": harmless})
        with pytest.raises(BadRequestError, match=r"'reasoning\.effort'") as error:
            await client.responses.create(model=MODEL, input="Hi", extra_body={"chat_template_kwargs": {"a": 1}})
    assert (error.value.param, error.value.code) == ("chat_template_kwargs", "unsupported_parameter")


async def test_a_tool_under_a_grammar_is_refused(client: AsyncOpenAI) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[ab]+"}
    with pytest.raises(BadRequestError, match="to a grammar"):
        await ask(client, "Hello!", tools=[{"type": "custom", "name": "letters", "format": form}])


async def test_a_prompt_that_ends_inside_of_reasoning_goes_on_there(settings: Settings) -> None:
    speaker = Speaker("qwen3", lambda _: f"Hm.\n</think>\n\nYes.{END}", thinks=True)
    async with serving(settings, speaker) as service, service.client() as client:
        response = await ask(client, "Well?")
    assert response.output[0].content[0].text == "Hm."
    assert response.output_text == "Yes."


@pytest.mark.parametrize("sent_back", [False, True])
async def test_a_call_that_was_cut_short_is_told_with_its_output(
    client: AsyncOpenAI, speaker: Speaker, *, sent_back: bool
) -> None:
    sampled = said(f"weather{END}\n{ASSISTANT}").partition("aris")[0]
    first = await ask(client, "The weather?", tools=[WEATHER], max_output_tokens=len(encoded(sampled)))
    *_, call = first.output
    assert (call.type, call.status) == ("function_call", "incomplete")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "21"}
    before: Any = ["The weather?", *first.output] if sent_back else []
    sent: Any = [{"role": "user", "content": each} if isinstance(each, str) else each.to_dict() for each in before]
    second = await ask(client, [*sent, output], None if sent_back else first, tools=[WEATHER])
    assert second.output_text == "It is 21 degrees."
    assert '"arguments": {"arguments": "' in speaker.prompts[-1], speaker.prompts[-1]
    assert call.arguments.replace('"', '\\"') in speaker.prompts[-1]


@pytest.mark.parametrize("behind", ["", "\n\nAnd more."])
async def test_a_call_that_can_not_be_read_fails_the_response_as_its_last(settings: Settings, behind: str) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {city: Paris}}\n</tool_call>'
    speaker = Speaker("qwen3", lambda _: f"Look.\n{call}{behind}{END}")
    async with serving(settings, speaker) as service, service.client() as client:
        response = await ask(client, "Weather?", tools=[WEATHER])
    assert (response.status, response.error.message) == ("failed", "The model wrote a call that can't be read.")
    assert [item.status for item in response.output] == ["completed", "incomplete"]
    assert response.output[1].arguments == "{city: Paris}"


async def test_where_the_oldest_is_left_out_the_newest_stands_in_the_prompt(settings: Settings) -> None:
    numbers: dict[str, int] = {}

    def say(prompt: str) -> str:
        return f"Answer {numbers.setdefault(prompt, len(numbers))}. {'word ' * 1600}{END}"

    speaker, last = Speaker("hermes", say, pieces=1000), None
    async with serving(settings, speaker) as service, service.client() as client:
        for _ in range(7):
            asked = await client.responses.create(
                model="speaker", input="Go on.", truncation="auto", previous_response_id=last
            )
            last = asked.id
    answers = re.compile(r"Answer (\d)")
    kept = answers.findall(speaker.transcripts[-1].messages.decode())
    assert kept[-1] == "5"
    assert kept[0] > "0"
    assert answers.findall(speaker.prompts[-1]) == kept


@pytest.mark.parametrize("erase", [False, True])
async def test_what_was_deleted_comes_back_in_no_prompt(settings: Settings, erase: bool) -> None:
    """Each turn begins with the same words, so a prompt by the ids of earlier ones would look right."""
    numbers = itertools.count(1)
    speaker = Speaker("hermes", lru_cache(lambda _: f"This is answer {next(numbers)}.{END}"))
    async with serving(settings, speaker) as service, service.client() as client:
        conversation = await client.conversations.create()
        ask = partial(client.responses.create, model="speaker", input="Go on.", conversation=conversation.id)
        for _ in range(3):
            await ask()
        items = [item async for item in client.conversations.items.list(conversation.id, order="asc")]
        for item in items[:2]:
            await client.conversations.items.delete(
                str(item.id), conversation_id=conversation.id, extra_query={"erase": erase}
            )
        for answers in (["2", "3"], ["2", "3", "4"]):
            await ask()
            assert re.findall("answer ([0-9])", speaker.prompts[-1]) == answers
        kept = await service.store.messages("default", str(response_of(str(items[0].id))))
    assert [each.role for each in kept].count(READ) == (0 if erase else 1)
