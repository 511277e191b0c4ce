"""Harmony in and out over HTTP: the messages of a prompt and an answer, and histories that a client keeps as such."""

from typing import Any

from service.process import Settings
from tests.support.service.background import ended, submitted
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.seen import made, prompts

Json = dict[str, Any]
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
