"""The prompt: equal to openai-harmony's rendering, and a prefix of the next one but for analysis that a final outdates."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_harmony import (
    Conversation,
    DeveloperContent,
    Message,
    RenderConversationConfig,
    Role,
    SystemContent,
    ToolDescription,
)

from service.protocol.errors import InvalidRequest
from service.protocol.machine import Machine
from service.protocol.prompt import Identity, Limits, Prompt, build_prompt
from service.protocol.render import message
from service.protocol.steps import in_one_go
from service.protocol.tokens import ASSISTANT, CHANNEL, END, MESSAGE, RETURN, START, decode, encode
from service.protocol.wire import read_create
from store.turn import StoredMessage
from tests.protocol import samples
from tests.protocol.oracle import Oracle, Said
from tests.protocol.samples import FUNCTIONS, PROMPT_TOKENS, Sampled, created, generation, run

thousands = settings(max_examples=2000, derandomize=True, deadline=None)
hundreds = settings(max_examples=250, derandomize=True, deadline=None)

IDENTITY = Identity("You are ChatGPT, a large language model trained by OpenAI.", "2024-06", context_tokens=131_072)
DATE = "2025-06-28"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "The weather now.", "parameters": SCHEMA},
    {"type": "function", "name": "lookup", "parameters": None},
]

Json = dict[str, Any]


def prompt(chain: Sequence[StoredMessage] = (), identity: Identity = IDENTITY, **body: Any) -> Prompt:
    """The prompt of a create request on top of a chain."""
    request = read_create(msgspec.json.encode({"model": "m", **body}), store=True)
    return in_one_go(build_prompt(request, chain, identity, date=DATE, limits=Limits()))


# --- openai-harmony renders the same ---


@dataclass(frozen=True)
class Step:
    """An input item as a client sends it, and what openai-harmony is told instead; None where nothing is."""

    item: Json
    said: Said | None


def _message(role: str, text: str, *, parts: bool) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "content": [{"type": kind, "text": text}] if parts else text}


def _user(text: str, parts: bool) -> list[Step]:
    return [Step(_message("user", text, parts=parts), Said("user", text))]


def _instruction(text: str, role: str) -> list[Step]:
    return [Step(_message(role, text, parts=False), Said("developer", f"# Instructions\n\n{text}"))]


def _answer(text: str, parts: bool, phase: str | None) -> list[Step]:
    item = {"type": "message", **_message("assistant", text, parts=parts), "phase": phase}
    channel = "commentary" if phase == "commentary" else "final"
    return [Step(item, Said("assistant", text, {"channel": channel}))]


def _thought(text: str, raw: bool) -> list[Step]:
    if not raw:
        return [Step({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}, None)]
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
    return [Step(item, Said("assistant", text, {"channel": "analysis"}))]


def _call(number: int, name: str, text: str) -> list[Step]:
    call_id = f"call_{number}"
    header: dict[str, str | None] = {"channel": "commentary", "recipient": f"functions.{name}"}
    call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}
    output = {"type": "function_call_output", "call_id": call_id, "output": text}
    answer: dict[str, str | None] = {"name": f"functions.{name}", "channel": "commentary", "recipient": "assistant"}
    return [
        Step(call, Said("assistant", text, {**header, "content_type": "<|constrain|>json"})),
        Step(output, Said("tool", text, answer)),
    ]


texts, flags = samples.texts, st.booleans()
numbered = st.integers(0, 2**32)
steps = st.one_of(
    st.builds(_user, texts, flags),
    st.builds(_instruction, texts, st.sampled_from(["system", "developer"])),
    st.builds(_answer, texts, flags, st.sampled_from([None, "final_answer", "commentary"])),
    st.builds(_thought, texts, flags),
    st.builds(_call, numbered, st.sampled_from(sorted(FUNCTIONS)), texts),
)
conversations = st.lists(steps, min_size=1, max_size=8).map(lambda parts: [*chain.from_iterable(parts)])


def without_outdated_analysis(said: Sequence[Said]) -> list[Said]:
    """Our rule: analysis before the last final answer goes, and nothing else."""
    finals = [place for place, each in enumerate(said) if each.header.get("channel") == "final"]
    cut = finals[-1] if finals else 0
    return [each for each in said[:cut] if each.header.get("channel") != "analysis"] + [*said[cut:]]


def expected(oracle: Oracle, said: Sequence[Said], instructions: str | None, tools: list[Json]) -> list[int]:
    """What openai-harmony renders for completion."""
    system = SystemContent(
        model_identity=IDENTITY.name, knowledge_cutoff=IDENTITY.knowledge_cutoff, conversation_start_date=DATE
    )
    opening = [Message.from_role_and_content(Role.SYSTEM, system)]
    if instructions or tools:
        developer = DeveloperContent(instructions=instructions or None)
        if tools:
            described = [
                ToolDescription(
                    name=tool["name"], description=tool.get("description") or "", parameters=tool["parameters"]
                )
                for tool in tools
            ]
            developer.with_function_tools(described)
        opening.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    messages = [each.for_harmony() for each in without_outdated_analysis(said)]
    return oracle.encoding.render_conversation_for_completion(
        Conversation(messages=[*opening, *messages]),
        Role.ASSISTANT,
        RenderConversationConfig(auto_drop_analysis=False),
    )


@thousands
@given(steps=conversations, instructions=st.none() | texts, tools=st.sampled_from([[], TOOLS[:1], TOOLS]))
def test_the_prompt_is_what_openai_harmony_renders(
    oracle: Oracle, steps: list[Step], instructions: str | None, tools: list[Json]
) -> None:
    ours = prompt(input=[step.item for step in steps], instructions=instructions, tools=tools)
    said = [step.said for step in steps if step.said is not None]

    assert ours.tokens.tolist() == expected(oracle, said, instructions, tools)


@hundreds
@given(steps=conversations, place=st.integers(0, 20))
def test_a_stored_chain_and_items_sent_again_make_one_prompt(steps: list[Step], place: int) -> None:
    items = [step.item for step in steps]
    place = min(place, len(items))
    place -= place > 0 and items[place - 1].get("type") == "function_call"
    stored = prompt(input=items[:place]).messages if place else []
    again = (
        prompt(stored, input=items[place:] or None, previous_response_id="resp_0") if stored else prompt(input=items)
    )

    assert again.tokens == prompt(input=items).tokens


# --- what was sampled stays ---


@dataclass(frozen=True)
class Turn:
    """A turn of a random conversation: what it prompted and sampled, and its chain up to and with it."""

    prompt: Prompt
    sampled: list[int]
    chain: tuple[StoredMessage, ...]
    open_calls: tuple[str, ...]


def continued(parent: Turn | None, number: int, said: str, messages: list[Sampled]) -> Turn:
    """A turn that answers its parent's calls, says something and samples `messages`."""
    before = parent.chain if parent else ()
    outputs = [
        {"type": "function_call_output", "call_id": call_id, "output": said}
        for call_id in (parent.open_calls if parent else ())
    ]
    made = prompt(before, input=[*outputs, {"role": "user", "content": said}], tools=TOOLS)
    base = msgspec.structs.replace(created(), id=f"resp_{number:048x}")
    machine = Machine(base, FUNCTIONS, PROMPT_TOKENS)
    run(machine, [generation(messages)])
    calls = tuple(each.call_id for each in machine.messages if each.call_id is not None)
    return Turn(made, generation(messages), (*before, *made.messages, *machine.messages), calls)


def shown_again(ids: Sequence[int]) -> list[int]:
    """A conversation's tokens without the analysis before the last final, found in the tokens themselves."""
    starts = [place for place, token in enumerate(ids) if token == START]
    messages = [list(ids[start:end]) for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)]
    finals = [place for place, each in enumerate(messages) if each[1:4] == [ASSISTANT, CHANNEL, *encode("final")]]
    cut = finals[-1] if finals else 0
    thought = [START, ASSISTANT, CHANNEL, *encode("analysis"), MESSAGE]
    return [token for i, each in enumerate(messages) if i >= cut or each[:5] != thought for token in each]


turns = st.tuples(st.integers(0, 9), samples.texts, samples.conversations)


@hundreds
@given(plan=st.lists(turns, min_size=2, max_size=6))
def test_on_every_branch_a_prompt_begins_with_the_one_before_it_and_what_was_sampled(
    plan: list[tuple[int, str, list[Sampled]]],
) -> None:
    made: list[Turn] = []
    for number, (choice, said, messages) in enumerate(plan):
        parent = made[choice % len(made)] if made else None
        turn = continued(parent, number, said, messages)
        if parent is not None:
            before = [*parent.prompt.tokens, *(END if token == RETURN else token for token in parent.sampled)]
            begins = shown_again(before)
            assert turn.prompt.tokens.tolist()[: len(begins)] == begins
        made.append(turn)


# --- which analysis a prompt shows ---

THOUGHT = message("Hm.", "assistant", channel="analysis")
PREAMBLE = message("Let me see.", "assistant", channel="commentary")
CALLING = message("{}", "assistant", channel="commentary", recipient="functions.lookup", call_id="call_1")
ANSWER = message("42", "assistant", channel="final")
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "5"}


def text_after(chain: Sequence[StoredMessage], *items: Json) -> str:
    """What a prompt shows of a chain and items, without the system message."""
    return decode(prompt(chain, input=[*items, {"role": "user", "content": "Go on."}]).tokens).partition("message.")[2]


def test_analysis_before_a_final_answer_is_dropped() -> None:
    assert text_after([THOUGHT, ANSWER]) == "assistantfinal42userGo on.assistant"


def test_analysis_of_an_unfinished_tool_call_is_kept() -> None:
    assert "Hm." in text_after([THOUGHT, CALLING], OUTPUT)


def test_preambles_calls_and_outputs_outlive_the_final_answer() -> None:
    output = message(
        "5", "tool", name="functions.lookup", channel="commentary", recipient="assistant", call_id="call_1"
    )
    shown = text_after([THOUGHT, PREAMBLE, CALLING, output, ANSWER])

    assert "Hm." not in shown
    assert all(text in shown for text in ("Let me see.", "to=functions.lookup", "functions.lookup to=assistant"))


def test_a_call_on_the_analysis_channel_outlives_the_final_answer() -> None:
    call = message("{}", "assistant", channel="analysis", recipient="functions.lookup", call_id="call_1")
    output = message(
        "5", "tool", name="functions.lookup", channel="commentary", recipient="assistant", call_id="call_1"
    )

    assert "to=functions.lookup" in text_after([call, output, ANSWER])


def test_a_call_on_the_final_channel_is_no_final_answer() -> None:
    call = message("{}", "assistant", channel="final", recipient="functions.lookup", call_id="call_1")

    assert "Hm." in text_after([THOUGHT, call], OUTPUT)


# --- what belongs to this request alone ---


def test_instructions_are_never_inherited() -> None:
    first = prompt(input="Hi", instructions="Answer in rhyme.")

    assert "rhyme" in decode(first.tokens)
    assert "rhyme" not in decode(prompt(first.messages, input="Go on.").tokens)


def test_a_developer_item_belongs_to_the_chain() -> None:
    first = prompt(input=[{"role": "developer", "content": "Answer in rhyme."}, {"role": "user", "content": "Hi"}])

    assert "rhyme" in decode(prompt(first.messages, input="Go on.").tokens)


def test_the_effort_is_that_of_the_request() -> None:
    assert "Reasoning: high" in decode(prompt(input="Hi", reasoning={"effort": "high"}).tokens)


# --- what is refused ---


def refusal(*args: Any, **kwargs: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        prompt(*args, **kwargs)
    return caught.value


def test_an_output_without_its_call_is_refused_by_its_call_id() -> None:
    error = refusal(input=[OUTPUT])

    assert (error.status, error.param, error.code) == (400, "input", None)
    assert "call_1" in error.message
    assert "input[0]" in error.message


def test_an_output_finds_its_call_anywhere_in_the_chain() -> None:
    made = prompt([CALLING, PREAMBLE], input=[OUTPUT])

    assert made.messages[0].name == "functions.lookup"


def test_a_call_left_without_output_is_refused_by_its_call_id() -> None:
    error = refusal([CALLING], input="What now?")

    assert error.param == "input"
    assert "No tool output found for function call call_1" in error.message


@pytest.mark.parametrize("empty", [[], None])
def test_a_conversation_without_any_item_is_refused(empty: object) -> None:
    error = refusal(input=empty, previous_response_id="resp_0")

    assert (error.param, error.code) == ("input", "invalid_value")


def test_nothing_new_on_top_of_a_chain_is_allowed() -> None:
    assert prompt([ANSWER], input=[], previous_response_id="resp_0").messages == []


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    tokens = len(prompt(input="Hi").tokens)
    room = msgspec.structs.replace(IDENTITY, context_tokens=tokens + 1)
    error = refusal(identity=msgspec.structs.replace(IDENTITY, context_tokens=tokens), input="Hi")

    assert len(prompt(identity=room, input="Hi").tokens) == tokens
    assert (error.code, error.param) == ("context_length_exceeded", "input")
    assert str(tokens) in error.message


def test_a_text_beyond_the_context_is_refused_before_it_is_all_encoded() -> None:
    error = refusal(input="a few words, " * 500_000)

    assert error.code == "context_length_exceeded"
    assert "more than 131072 tokens" in error.message
