"""What later prompts see of a response: messages as they were sampled, or rendered anew where they were malformed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.harmony.calls import CUT_CALL
from service.harmony.tokens import CALL, END, START, unpack
from service.responses.output.machine import Ending
from tests.core.responses.output.test_items import short
from tests.support.oracles.harmony import Oracle, Said
from tests.support.responses import samples
from tests.support.responses.samples import OPENING, Sampled, as_json, generation, harmony, run, sampled

endings = st.sampled_from(Ending)


def kept(text: str, ending: Ending = Ending.STOP) -> list[list[int]]:
    """The ids of the messages kept for later prompts."""
    return [unpack(message.tokens).tolist() for message in sampled(text, ending).messages]


def rendered(oracle: Oracle, *said: Said) -> list[list[int]]:
    return [oracle.message(each) for each in said]


@given(messages=samples.conversations)
def test_well_formed_messages_are_kept_token_for_token(messages: list[Sampled]) -> None:
    machine = samples.machine()
    run(machine, [generation(messages)])

    assert [unpack(message.tokens).tolist() for message in machine.messages] == [each.ids() for each in messages]


@pytest.mark.parametrize("stop", ["<|end|>", "<|return|>", "<|endoftext|>"])
def test_a_call_is_kept_with_the_mark_of_a_call(stop: str) -> None:
    call = "<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>{}"

    assert kept(call + stop) == [harmony(f"<|start|>assistant{call}<|call|>")]


@pytest.mark.parametrize("ending", [Ending.LENGTH, Ending.ABORT, Ending.ERROR, Ending.TIMEOUT])
def test_a_call_cut_short_is_shown_and_leaves_a_note(ending: Ending) -> None:
    machine = sampled('<|channel|>commentary to=functions.lookup<|message|>{"q', ending)

    assert [(short(item), as_json(item)["status"]) for item in machine.output] == [
        (("call", "lookup", '{"q'), "incomplete")
    ]
    (note,) = machine.messages
    assert (note.role, note.tokens, note.name, note.recipient) == (CUT_CALL, b"", '{"q', "functions.lookup")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<|message|>Hi<|return|>", Said("assistant", "Hi", {"channel": "final"})),
        ("<|channel|>analysis Hm<|end|>", Said("assistant", " Hm", {"channel": "analysis"})),
        ("<|channel|>comment<|message|>Hi<|end|>", Said("assistant", "Hi", {"channel": "commentary"})),
        ("<|channel|>final<|message|>4<|constrain|>2<|return|>", Said("assistant", "42", {"channel": "final"})),
        (
            "<|channel|>functions.lookup<|message|>{}<|end|>",
            Said(
                "assistant",
                "{}",
                {"channel": "commentary", "recipient": "functions.lookup", "content_type": "<|constrain|>json"},
            ),
        ),
    ],
)
def test_a_malformed_message_is_kept_as_openai_harmony_renders_it(oracle: Oracle, text: str, said: Said) -> None:
    assert kept(text) == rendered(oracle, said)


@given(ids=samples.wild | samples.mutated, ending=endings)
def test_every_kept_message_is_well_formed(ids: list[int], ending: Ending) -> None:
    machine = samples.machine()
    run(machine, [ids], ending)
    for message in [each for each in machine.messages if each.role != CUT_CALL]:
        kept = unpack(message.tokens).tolist()
        assert kept.count(START) == 1
        if message.role == "assistant":
            assert kept[:2] == OPENING
            assert kept[-1] == (CALL if message.recipient else END)
        else:
            assert (message.role, message.recipient, kept[-1]) == ("tool", "assistant", END)
        assert message.channel in ("analysis", "commentary", "final")
