"""One response as a machine: what sampled tokens become, sane items for malformed ones above all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.protocol import ids as item_ids
from service.protocol import machine as machines
from service.protocol.machine import STATUS, Ending, Machine
from service.protocol.response import FunctionCall, Item, Message, Reasoning, ResponseError
from service.protocol.tokens import CALL, END, START, encode, unpack
from tests.event_grammar import check_stream
from tests.protocol import samples
from tests.protocol.oracle import Oracle, Said
from tests.protocol.samples import NOW, OPENING, RESPONSE_ID, Sampled, as_json, generation, harmony, run, split

thousands = settings(max_examples=2000, derandomize=True, deadline=None)
ten_thousand = settings(max_examples=10_000, derandomize=True, deadline=None)
hundreds = settings(max_examples=300, derandomize=True, deadline=None)

endings = st.sampled_from(Ending)


def sampled(text: str, ending: Ending = Ending.STOP) -> Machine:
    """The machine after it was fed a generation in Harmony's notation, and ended."""
    machine = samples.machine()
    run(machine, [harmony(text)], ending)
    return machine


def short(item: Item) -> tuple[str, ...]:
    """An item in a line: kind, text, and for a call its name."""
    if isinstance(item, FunctionCall):
        return "call", item.name, item.arguments
    if isinstance(item, Reasoning):
        return "reasoning", item.content[0].text
    return item.phase, item.content[0].text


def items(text: str) -> list[tuple[str, ...]]:
    """The items, in short, that a generation becomes."""
    return [short(item) for item in sampled(text).output]


# --- the stream ---


def check_any_stream(ids: list[int], ending: Ending) -> None:
    check_stream([as_json(event) for event in run(samples.machine(), [ids], ending)])


@thousands
@given(ids=samples.streams, ending=endings)
def test_any_tokens_give_a_stream_that_keeps_the_grammar(ids: list[int], ending: Ending) -> None:
    check_any_stream(ids, ending)


@pytest.mark.full
@pytest.mark.timeout(600)
@ten_thousand
@given(ids=samples.streams, ending=endings)
def test_ten_thousand_streams_keep_the_grammar(ids: list[int], ending: Ending) -> None:
    check_any_stream(ids, ending)


@hundreds
@given(ids=samples.streams, places=samples.cuts, ending=endings)
def test_events_do_not_depend_on_how_the_engine_chunks(ids: list[int], places: list[int], ending: Ending) -> None:
    whole = run(samples.machine(), [ids], ending)

    assert run(samples.machine(), [[token] for token in ids], ending) == whole
    assert run(samples.machine(), split(ids, places), ending) == whole


def test_an_item_is_told_while_it_is_being_sampled() -> None:
    machine = samples.machine()
    machine.begin()
    steps = [machine.feed([token]) for token in harmony("<|channel|>final<|message|>a")]
    types = [[event.__struct_config__.tag for event in step] for step in steps]

    assert types == [
        [],
        [],
        ["response.output_item.added", "response.content_part.added"],
        ["response.output_text.delta"],
    ]


# --- well-formed items ---


def test_analysis_is_reasoning_commentary_a_preamble_and_final_the_answer() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>42<|return|>"
    )

    assert items(text) == [("reasoning", "Hm."), ("commentary", "Let me see."), ("final_answer", "42")]


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>{}<|call|>",
        " to=functions.lookup<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.lookup json<|message|>{}<|call|>",
    ],
    ids=["recipient after the channel", "recipient before it", "unmarked type"],
)
def test_a_recipient_makes_a_function_call(text: str) -> None:
    assert items(text) == [("call", "lookup", "{}")]


def test_ids_of_items_and_calls_come_from_the_response_and_the_place() -> None:
    output = sampled(
        "<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.lookup<|message|>{}<|call|>"
    ).output

    assert output[0].id == item_ids.output_item_id(RESPONSE_ID, "reasoning", 0)
    assert output[1].id == item_ids.output_item_id(RESPONSE_ID, "function_call", 1)
    assert isinstance(output[1], FunctionCall)
    assert output[1].call_id == item_ids.call_id(RESPONSE_ID, 1)


# --- malformed output, each seen from gpt-oss, and the sane items it becomes ---

ANSWER = "<|channel|>final<|message|>42<|return|>"
CALLED = [("call", "lookup", "{}")]
MALFORMED = {
    "the start between messages is missing": (
        f"<|channel|>analysis<|message|>Hm.<|end|>{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "the role between messages is missing": (
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "the end between messages is missing": (
        f"<|channel|>analysis<|message|>Hm.<|start|>assistant{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "end and start between messages are missing": (
        f"<|channel|>analysis<|message|>Hm.{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "an end is doubled": (
        f"<|channel|>analysis<|message|>Hm.<|end|><|end|><|start|>assistant{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "the role is doubled": (f"assistant{ANSWER}", [("final_answer", "42")]),
    "the whole opening is doubled": (f"<|start|>assistant{ANSWER}", [("final_answer", "42")]),
    "a type and no recipient": (
        '<|channel|>commentary<|constrain|>json<|message|>{"a":1}<|end|>',
        [("commentary", '{"a":1}')],
    ),
    "the type as the recipient": (
        "<|channel|>commentary to=<|constrain|>json<|message|>{}<|call|>",
        [("commentary", "{}")],
    ),
    "the recipient in the channel's place": ("<|channel|>functions.lookup<|message|>{}<|call|>", CALLED),
    "the recipient with its to= in the channel's place": (
        "<|channel|>to=functions.lookup<|message|>{}<|call|>",
        CALLED,
    ),
    "a declared name in the channel's place": ("<|channel|>lookup <|constrain|>json<|message|>{}<|call|>", CALLED),
    "the recipient in the role": (
        f"{ANSWER}<|start|>functions.lookup<|message|>{{}}<|call|>",
        [("final_answer", "42"), *CALLED],
    ),
    "the recipient without its to=": ("<|channel|>commentary functions.lookup<|message|>{}<|call|>", CALLED),
    "a call on the analysis channel": ("<|channel|>analysis to=functions.lookup code<|message|>{}<|call|>", CALLED),
    "a call without a channel": (" to=functions.lookup<|message|>{}<|call|>", CALLED),
    "functions. is missing": ("<|channel|>commentary to=lookup<|message|>{}<|call|>", CALLED),
    "functions. is doubled": ("<|channel|>commentary to=functions.functions.lookup<|message|>{}<|call|>", CALLED),
    "the type is glued to the name": ("<|channel|>commentary to=functions.lookupjson<|message|>{}<|call|>", CALLED),
    "the channel is glued to the name": (
        " to=functions.lookup<|channel|>commentary<|channel|>commentary<|message|>{}<|call|>",
        CALLED,
    ),
    "a call is ended by end": ("<|channel|>commentary to=functions.lookup<|message|>{}<|end|>", CALLED),
    "a call is ended by return": ("<|channel|>commentary to=functions.lookup<|message|>{}<|return|>", CALLED),
    "the call's message mark is missing": ("<|channel|>commentary to=functions.lookup{}<|call|>", CALLED),
    "a call without arguments": ("<|channel|>commentary to=functions.lookup<|call|>", [("call", "lookup", "")]),
    "arguments that are not JSON": (
        "<|channel|>commentary to=functions.lookup<|message|>{city: Oslo<|call|>",
        [("call", "lookup", "{city: Oslo")],
    ),
    "a function that nobody declared": (
        "<|channel|>commentary to=functions.other<|message|>{}<|call|>",
        [("call", "other", "{}")],
    ),
    "a recipient that is no function": (
        "<|channel|>commentary to=browser.open<|message|>{}<|call|>",
        [("commentary", "{}")],
    ),
    "an unknown channel": ("<|channel|>comment<|message|>Hi<|end|>", [("commentary", "Hi")]),
    "no channel at all": ("<|message|>Hi<|return|>", [("final_answer", "Hi")]),
    "an empty final": ("<|channel|>final<|message|><|return|>", [("final_answer", "")]),
    "text before any header": (
        f"Hi there<|end|><|start|>assistant{ANSWER}",
        [("final_answer", "Hi there"), ("final_answer", "42")],
    ),
    "text alone": ("Hi there", [("final_answer", "Hi there")]),
    "text after the end": (f"{ANSWER}More", [("final_answer", "42"), ("final_answer", "More")]),
    "the final's message mark is missing": ('<|channel|>final{"a":1}<|return|>', [("final_answer", '{"a":1}')]),
    "the analysis' message mark is missing": ("<|channel|>analysis The user<|end|>", [("reasoning", " The user")]),
    "the analysis' channel mark is missing": ("analysis<|message|>Secret<|end|>", [("reasoning", "Secret")]),
    "the channel is glued to the role": (
        f"{ANSWER}<|start|>assistantanalysis<|message|>Secret<|end|>",
        [("final_answer", "42"), ("reasoning", "Secret")],
    ),
    "analysis alone": ("<|channel|>analysis<|message|>Hm.<|return|>", [("reasoning", "Hm.")]),
    "marks inside the text": ("<|channel|>final<|message|>4<|constrain|>2<|return|>", [("final_answer", "42")]),
    "marks alone": ("<|end|><|start|>assistant<|end|>", []),
}


@pytest.mark.parametrize(("text", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_output_becomes_sane_items(text: str, expected: list[tuple[str, ...]]) -> None:
    assert items(text) == expected


def test_an_id_that_does_not_exist_loses_no_text() -> None:
    machine = samples.machine()
    run(machine, [[*harmony("<|channel|>final<|message|>4"), 201088, *encode("2"), END]])

    assert [short(item) for item in machine.output] == [("final_answer", "42")]


def test_items_beyond_those_that_ids_can_name_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "MAX_OUTPUT_ITEMS", 2)
    machine = samples.machine()
    response = check_stream([as_json(event) for event in run(machine, [harmony(ANSWER) * 3])])

    assert len(response["output"]) == 2
    assert response["usage"]["output_tokens"] == 3 * len(harmony(ANSWER))


# --- how it ends ---


def finished(text: str, ending: Ending) -> tuple[str, str | None, str | None]:
    """Status, the reason for an incomplete one, and the last item's status."""
    machine = samples.machine()
    run(machine, [harmony(text)], ending)
    response = machine.result(ending, now=NOW)
    reason = response.incomplete_details and response.incomplete_details.reason
    return response.status, reason, response.output[-1].status if response.output else None


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending.STOP, ("completed", None, "completed")),
        (Ending.LENGTH, ("incomplete", "max_output_tokens", "incomplete")),
        (Ending.ABORT, ("cancelled", None, "incomplete")),
        (Ending.TIMEOUT, ("failed", None, "incomplete")),
        (Ending.ERROR, ("failed", None, "incomplete")),
    ],
)
def test_the_ending_decides_the_status_of_the_response_and_of_the_open_item(
    ending: Ending, expected: tuple[str, str | None, str | None]
) -> None:
    assert finished("<|channel|>final<|message|>4", ending) == expected


def test_every_ending_has_a_status() -> None:
    assert set(STATUS) == set(Ending)


@pytest.mark.parametrize("ending", [Ending.LENGTH, Ending.ABORT, Ending.ERROR])
def test_an_item_that_was_closed_stays_complete_however_the_response_ends(ending: Ending) -> None:
    assert finished(ANSWER, ending)[2] == "completed"


def test_a_model_that_says_nothing_at_all_is_incomplete() -> None:
    assert finished("", Ending.STOP) == ("incomplete", "no_output", None)
    assert finished("", Ending.LENGTH) == ("incomplete", "max_output_tokens", None)


def test_a_failure_says_why_in_an_error_event_and_keeps_what_was_said() -> None:
    machine = samples.machine()
    events = run(machine, [harmony("<|channel|>final<|message|>4")], Ending.ERROR)
    error, failed = (as_json(event) for event in events[-2:])

    assert (error["type"], error["code"], error["message"]) == ("error", "server_error", "it broke")
    assert failed["response"]["output"][0]["content"][0]["text"] == "4"


def test_only_a_completed_response_says_when() -> None:
    machine = sampled(ANSWER)

    assert machine.result(Ending.STOP, now=NOW).completed_at == NOW
    assert machine.result(Ending.LENGTH, now=NOW).completed_at is None


def test_an_error_is_shown_only_by_a_response_that_failed() -> None:
    error = ResponseError("server_error", "it broke")
    machine = sampled(ANSWER)

    assert machine.result(Ending.ERROR, now=NOW, error=error).error == error
    assert machine.result(Ending.STOP, now=NOW, error=error).error is None


def test_usage_counts_every_sampled_token_and_those_of_reasoning() -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|>"
    answer = f"<|start|>assistant{ANSWER}"
    usage = sampled(thought + answer).result(Ending.STOP, now=NOW, cached_tokens=64).usage

    assert usage is not None
    assert usage.input_tokens == samples.PROMPT_TOKENS
    assert usage.input_tokens_details.cached_tokens == 64
    assert usage.output_tokens == len(harmony(thought + answer))
    assert usage.output_tokens_details.reasoning_tokens == len(harmony(thought))
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


# --- what later prompts see ---


def kept(text: str, ending: Ending = Ending.STOP) -> list[list[int]]:
    """The ids of the messages kept for later prompts."""
    return [unpack(message.tokens).tolist() for message in sampled(text, ending).messages]


def rendered(oracle: Oracle, *said: Said) -> list[list[int]]:
    return [oracle.message(each) for each in said]


@hundreds
@given(messages=samples.conversations)
def test_well_formed_messages_are_kept_token_for_token(messages: list[Sampled]) -> None:
    machine = samples.machine()
    run(machine, [generation(messages)])

    assert [unpack(message.tokens).tolist() for message in machine.messages] == [each.ids() for each in messages]


def test_a_return_is_kept_as_an_end() -> None:
    assert kept(ANSWER) == [harmony("<|start|>assistant<|channel|>final<|message|>42<|end|>")]


@pytest.mark.parametrize("stop", ["<|end|>", "<|return|>", "<|endoftext|>"])
def test_a_call_is_kept_with_the_mark_of_a_call(stop: str) -> None:
    call = "<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>{}"

    assert kept(call + stop) == [harmony(f"<|start|>assistant{call}<|call|>")]


def test_a_message_cut_short_is_kept_and_closed() -> None:
    assert kept("<|channel|>final<|message|>4", Ending.LENGTH) == [
        harmony("<|start|>assistant<|channel|>final<|message|>4<|end|>")
    ]


@pytest.mark.parametrize("ending", [Ending.LENGTH, Ending.ABORT, Ending.ERROR, Ending.TIMEOUT])
def test_a_call_cut_short_is_shown_and_not_kept(ending: Ending) -> None:
    machine = sampled('<|channel|>commentary to=functions.lookup<|message|>{"q', ending)

    assert [(short(item), item.status) for item in machine.output] == [(("call", "lookup", '{"q'), "incomplete")]
    assert machine.messages == []
    assert machine.calls == 0


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


def test_a_malformed_message_of_any_length_is_kept() -> None:
    spaces = encode(" " * 64)
    machine = samples.machine()
    run(machine, [[*harmony("<|message|>"), *spaces * 20_000]], Ending.LENGTH)
    (item,), (message,) = machine.output, machine.messages

    assert isinstance(item, Message)
    assert len(item.content[0].text) == 64 * 20_000
    assert len(message.tokens) > 0


@hundreds
@given(ids=samples.wild | samples.mutated, ending=endings)
def test_every_kept_message_is_well_formed(ids: list[int], ending: Ending) -> None:
    machine = samples.machine()
    run(machine, [ids], ending)
    for message in machine.messages:
        kept = unpack(message.tokens).tolist()
        assert kept[:2] == OPENING
        assert kept.count(START) == 1
        assert kept[-1] == (CALL if message.recipient else END)
        assert message.channel in ("analysis", "commentary", "final")


def test_a_call_keeps_its_id_for_the_output_that_answers_it() -> None:
    machine = sampled("<|channel|>commentary to=functions.lookup<|message|>{}<|call|>")
    (call,), (message,) = machine.output, machine.messages

    assert isinstance(call, FunctionCall)
    assert message.call_id == call.call_id
    assert message.recipient == "functions.lookup"
    assert machine.calls == 1
