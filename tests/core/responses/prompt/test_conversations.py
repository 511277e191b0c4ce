"""Prompts of random conversations: what openai-harmony renders, and each the beginning of the next on its branch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
from hypothesis import given
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

from service.harmony.render import KNOWLEDGE_CUTOFF, message
from service.harmony.tokens import ASSISTANT, CHANNEL, END, MESSAGE, RETURN, START, encode
from service.responses.output.machine import Machine
from service.responses.prompt.build import MODEL_IDENTITY, Prompt
from store.turn import StoredMessage
from tests.support.oracles.harmony import Oracle, Said
from tests.support.responses import samples
from tests.support.responses.requests import DATE, TOOLS, prompt
from tests.support.responses.samples import FUNCTIONS, PROMPT_TOKENS, RULES, Sampled, created, generation, run

Json = dict[str, Any]


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
    system = SystemContent(
        model_identity=MODEL_IDENTITY, knowledge_cutoff=KNOWLEDGE_CUTOFF, conversation_start_date=DATE
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
        Conversation(messages=[*opening, *messages]), Role.ASSISTANT, RenderConversationConfig(auto_drop_analysis=False)
    )


@given(steps=conversations, instructions=st.none() | texts, tools=st.sampled_from([[], TOOLS[:1], TOOLS]))
def test_the_prompt_is_what_openai_harmony_renders(
    oracle: Oracle, steps: list[Step], instructions: str | None, tools: list[Json]
) -> None:
    ours = prompt(input=[step.item for step in steps], instructions=instructions, tools=tools)
    said = [step.said for step in steps if step.said is not None]

    assert ours.tokens.tolist() == expected(oracle, said, instructions, tools)


@given(steps=conversations, place=st.integers(0, 20))
def test_a_stored_chain_and_items_sent_again_make_one_prompt(steps: list[Step], place: int) -> None:
    items = [step.item for step in steps]
    earlier = message("Hm.", "assistant", channel="analysis")
    place = min(place, len(items))
    place -= place > 0 and items[place - 1].get("type") == "function_call"
    stored = prompt(input=items[:place]).messages if place else []
    continued = prompt([earlier, *stored], input=items[place:], previous_response_id="resp_0")

    assert continued.tokens == prompt([earlier], input=items).tokens


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
    machine = Machine(base, RULES, PROMPT_TOKENS)
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
