"""Harmony in and out over HTTP: the messages of a prompt and an answer, and histories that a client keeps as such."""

from typing import Any

import pytest
from openai import BadRequestError

from service.settings.settings import Settings
from tests.support.service.background import ended, submitted
from tests.support.service.inside import answer, called, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import made, prompts

Json = dict[str, Any]
LOOK: Any = {"type": "function", "name": "look", "parameters": None, "strict": False}
SAID = [*thought("A greeting."), *then(answer("Ahoy."))]
SHOWN: Any = {"enable_response_messages": True}


def said(message: Json) -> tuple[str, str | None, str]:
    return message["role"], message.get("channel"), message["content"][0]["text"]


async def test_messages_are_shown_where_that_is_asked_for_and_nowhere_else(settings: Settings) -> None:
    async with serving(settings, scripted([SAID])) as inside, inside.client() as client:
        shown = await made(inside, input="Hi", instructions="Be brief.", **SHOWN)
        again = (await client.responses.retrieve(shown["id"])).to_dict()
        queued = await ended(client, (await submitted(client, "Hi", instructions="Be brief.", extra_body=SHOWN)).id)
        plain = await made(inside, input="Hi")

    system, *others = shown["input_messages"]
    assert system["role"] == "system"
    assert [said(message) for message in others] == [
        ("developer", None, "# Instructions\n\nBe brief."),
        ("user", None, "Hi"),
    ]
    assert [said(message) for message in shown["output_messages"]] == [
        ("assistant", "analysis", "A greeting."),
        ("assistant", "final", "Ahoy."),
    ]
    assert again == shown
    assert queued.to_dict()["output_messages"] == shown["output_messages"]
    assert not {"input_messages", "output_messages"} & plain.keys()


async def test_a_history_that_a_client_keeps_makes_the_store_s_own_prompt(settings: Settings) -> None:
    engine = scripted([SAID])
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Hi", instructions="Be brief.", **SHOWN)
        second = await made(inside, input="And?", previous_response_id=first["id"], **SHOWN)
        history = [*first["input_messages"], *first["output_messages"]]
        alone = await made(inside, input="And?", previous_input_messages=history, store=False, **SHOWN)
        longer = [*alone["input_messages"], *alone["output_messages"]]
        await made(inside, input="Well?", previous_input_messages=longer, store=False)
        await made(inside, input="Well?", previous_response_id=second["id"])

    _, stored, kept, longest, stored_longest = [list(generation.prompt) for generation in engine.generations]
    assert kept == stored
    assert longest == stored_longest
    assert "Be brief." not in prompts(engine)[-1], "a developer's message was taken over"


CHAT: list[Json] = [
    {"role": "system", "content": "Obey."},
    {"role": "user", "content": "Look around."},
    {
        "role": "assistant",
        "reasoning": "I look.",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "trees"},
    {"role": "assistant", "content": "Trees."},
]


async def test_chat_s_form_is_taken_too_with_the_tool_s_name_found_by_its_call(settings: Settings) -> None:
    engine = scripted([answer("Yes.")])
    async with serving(settings, engine) as inside:
        await made(inside, input="Sure?", previous_input_messages=CHAT, tools=[LOOK])
        await made(inside, input="Sure?", previous_input_messages=CHAT[:4], tools=[LOOK])

    done, amid = prompts(engine)
    call = "<|start|>assistant to=functions.look<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
    output = "<|start|>functions.look to=assistant<|channel|>commentary<|message|>trees<|end|>"
    user = "<|start|>user<|message|>Look around.<|end|>"
    assert f"{user}{call}{output}" in done
    assert f"{user}<|start|>assistant<|channel|>analysis<|message|>I look.<|end|>{call}{output}" in amid
    assert "Obey." not in done


async def test_a_call_of_the_history_is_answered_by_an_item_and_the_turn_is_continued(settings: Settings) -> None:
    engine = scripted([called("look", "{}")], [answer("Trees.")])
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Look.", tools=[LOOK], parallel_tool_calls=False, **SHOWN)
        call = first["output"][0]["call_id"]
        history = [*first["input_messages"], *first["output_messages"]]
        output = [{"type": "function_call_output", "call_id": call, "output": "trees"}]
        second = await made(inside, input=output, previous_input_messages=history, tools=[LOOK])
        await made(inside, input=output, previous_response_id=first["id"], tools=[LOOK])
        await made(inside, input="Sure?", previous_response_id=second["id"], tools=[LOOK])

    _, kept, stored, last = prompts(engine)
    assert kept == stored
    assert last.startswith(kept.removesuffix("<|start|>assistant"))


WRONG: dict[str, tuple[Any, str]] = {
    "with previous_response_id": ([{"role": "user", "content": "hi"}], "previous_input_messages"),
    "no list": ("hi", "previous_input_messages"),
    "an unknown role": ([{"role": "robot", "content": "hi"}], "previous_input_messages[0].role"),
    "a channel that there isn't": (
        [{"role": "assistant", "channel": "loud", "content": "hi"}],
        "previous_input_messages[0].channel",
    ),
    "an answer to no call": (
        [{"role": "tool", "tool_call_id": "call_9", "content": "hi"}],
        "previous_input_messages[0]",
    ),
}


async def test_a_history_that_is_wrong_is_a_400_that_says_where(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Yes.")])) as inside, inside.client() as client:
        parent = await client.responses.create(model=MODEL, input="Hi")
        for history, param in WRONG.values():
            body: Any = {"previous_input_messages": history}
            also: Any = {"previous_response_id": parent.id} if param == "previous_input_messages" else {}
            also = also if isinstance(history, list) else {}
            with pytest.raises(BadRequestError) as caught:
                await client.responses.create(model=MODEL, input="Hi", extra_body=body, **also)
            assert caught.value.param == param
