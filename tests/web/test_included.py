"""`include` of a GET: it does what it says, or is refused."""

from typing import Any

import openai
import pytest

from tests.support.service.process import MODEL, ServiceProcess

SEALED: Any = ["reasoning.encrypted_content"]
LOGPROBS: Any = ["message.output_text.logprobs"]


def test_reasoning_is_sealed_for_whoever_asks_later(service: ServiceProcess) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input="My boat is called Vesper.")
    assert made.output[0].type == "reasoning"
    assert not made.output[0].encrypted_content

    found = client.responses.retrieve(made.id, include=SEALED)
    assert found.output[0].type == "reasoning"
    assert found.output[0].encrypted_content
    assert found.output[0].content == made.output[0].content
    assert found.output[1:] == made.output[1:]
    assert client.responses.retrieve(made.id) == made

    replayed = [item.to_dict() for item in found.output]
    del replayed[0]["content"]
    again: Any = [
        {"role": "user", "content": "My boat is called Vesper."},
        *replayed,
        {"role": "user", "content": "Hi"},
    ]
    sent = client.responses.create(model=MODEL, input=again, store=False)
    chained = client.responses.create(model=MODEL, input="Hi", previous_response_id=made.id)
    assert sent.usage is not None
    assert chained.usage is not None
    assert sent.usage.input_tokens == chained.usage.input_tokens


def test_reasoning_in_lists_is_sealed_too(service: ServiceProcess) -> None:
    client = service.client()
    conversation = client.conversations.create()
    first = client.responses.create(model=MODEL, input="Hi", conversation=conversation.id)
    second = client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)

    def seals(items: Any) -> list[bool]:
        return [bool(item.encrypted_content) for item in items if item.type == "reasoning"]

    assert seals(client.responses.input_items.list(second.id, include=SEALED)) == [True]
    assert seals(client.responses.input_items.list(second.id)) == [False]
    assert seals(client.conversations.items.list(conversation.id, include=SEALED)) == [True]
    (thought,) = [item for item in first.output if item.type == "reasoning"]
    assert seals([client.conversations.items.retrieve(thought.id, conversation_id=conversation.id, include=SEALED)])


def test_log_probabilities_that_were_not_kept_are_refused(service: ServiceProcess) -> None:
    client = service.client()
    without = client.responses.create(model=MODEL, input="Hi")
    with_them = client.responses.create(model=MODEL, input="Hi", include=LOGPROBS, top_logprobs=1)

    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.retrieve(without.id, include=LOGPROBS)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_parameter", "include")
    assert client.responses.retrieve(with_them.id, include=LOGPROBS) == with_them
