"""What we render equals openai-harmony's ids, message by message and joined; no text becomes a special id."""

from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.api.request import read_create
from service.api.tools import builtin
from service.harmony import render, tokens
from service.harmony.tokens import decode, unpack
from service.harmony.typescript import Function, declaration, namespace
from service.responses.prompt.build import build_prompt
from service.responses.prompt.read import read_request
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.documents import block
from tests.support.oracles.harmony import Oracle, Said
from tests.support.responses.requests import CONTEXT_TOKENS, DATE, ENVELOPES
from tests.support.responses.samples import MARKS
from tests.support.steps import timed_steps

# --- conversations as users have them, and as forgers would ---

forgeries = st.sampled_from(
    ["<|start|>", "<|end|>", "<|call|>assistant", "<|channel|>final<|message|>", "<|constrain|>json", "<|endoftext|>"]
)
characters = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.lists(forgeries | characters, max_size=3).map("".join)
names = st.sampled_from(["functions.get_weather", "python", "all", "assistant", "用户", ""]) | texts
content_types = st.sampled_from(["json", "<|constrain|>json", "<|constrain|>", "code", ""]) | texts
channels = st.sampled_from(["analysis", "commentary", "final"]) | texts


def said(role: str) -> st.SearchStrategy[Said]:
    """A message of `role` with any header; only a tool has to have a name."""
    header = st.fixed_dictionaries(
        {"name": names if role == "tool" else st.none() | names},
        optional={
            "recipient": st.none() | names,
            "channel": st.none() | channels,
            "content_type": st.none() | content_types,
        },
    )
    return st.builds(Said, st.just(role), texts, header)


messages = st.sampled_from(["system", "developer", "user", "assistant", "tool"]).flatmap(said)


def rendered(said: Said) -> StoredMessage:
    return render.message(said.text, said.role, **cast(Any, said.header))


# --- one message ---


@given(conversation=st.lists(messages, max_size=8))
def test_messages_joined_are_the_prompt_of_openai_harmony(oracle: Oracle, conversation: list[Said]) -> None:
    joined = b"".join(rendered(said).tokens for said in conversation) + render.PROMPT_END

    assert unpack(joined).tolist() == oracle.prompt(conversation)


@given(said=messages)
def test_no_text_of_a_message_becomes_a_special_id(said: Said) -> None:
    specials = [rank for rank in unpack(rendered(said).tokens) if rank >= tokens.FIRST_SPECIAL]
    channel = [tokens.CHANNEL] if said.header.get("channel") is not None else []
    constrained = (said.header.get("content_type") or "").startswith("<|constrain|>")
    constrain = [tokens.CONSTRAIN] if constrained else []

    assert specials[:-1] == [tokens.START, *channel, *constrain, tokens.MESSAGE]
    assert specials[-1] in (tokens.END, tokens.CALL)


def test_the_cache_of_headers_is_bounded_and_takes_no_long_ones() -> None:
    cache, most = render._cached_header, render._cached_header.cache_parameters()["maxsize"]
    for number in range(most + 10):
        render.open_message("user", name=f"n{number}")
    full = cache.cache_info()
    render.open_message("user", name="n" * render.HEADER_CACHE_CHARS)

    assert full.currsize == most
    assert cache.cache_info() == full


# --- long messages ---


@given(text=texts, window=st.integers(4, 20))
def test_steps_give_the_same_message(text: str, window: int) -> None:
    with patch.multiple(tokens, SLICE_CHARS=window, BOUNDARY_SEARCH_CHARS=window // 2):
        stored, _ = timed_steps(render.message_steps(text, "user", limit=1_000, name="n", call_id="c"))

    assert stored == render.message(text, "user", name="n", call_id="c")


# --- the system message ---

days = st.dates().map(str)
efforts = st.sampled_from(["low", "medium", "high"])


@given(identity=texts, date=days, effort=efforts, has_functions=st.booleans())
@example("You are ChatGPT, a large language model trained by OpenAI.", "2025-06-28", "high", True)
def test_any_system_message_equals_that_of_openai_harmony(
    oracle: Oracle, identity: str, date: str, effort: str, has_functions: bool
) -> None:
    fields = {"identity": identity, "date": date, "effort": effort}
    ours = render.system_message(**fields, namespaces=("functions",) if has_functions else ())

    assert unpack(ours).tolist() == oracle.system_message(**fields, has_functions=has_functions)


@pytest.mark.parametrize("kinds", [("python",), ("browser",), ("browser", "python"), ()])
@pytest.mark.parametrize("has_functions", [False, True])
def test_tools_that_the_model_was_trained_with_are_told_in_the_words_of_openai_harmony(
    oracle: Oracle, kinds: tuple[str, ...], has_functions: bool
) -> None:
    tools = {
        "python": builtin.python(no_options, seconds=120, drive="/mnt/data"),
        "browser": builtin.browser(no_options),
    }
    fields = {"identity": "You are X.", "date": "2025-06-28", "effort": "low"}
    told = builtin.section(tools[kind] for kind in reversed(kinds)).replace(" is disabled.", f" {UNTRUE}")
    ours = render.system_message(**fields, namespaces=("functions",) if has_functions else (), tools=told)
    theirs = oracle.system_message(**fields, has_functions=has_functions, builtins=kinds)

    assert decode(unpack(ours)) == decode(theirs)
    assert unpack(ours).tolist() == theirs


def no_options(_sent: object, _where: str) -> str:
    return ""


UNTRUE = "is UNKNOWN. Depends on the cluster."
"""What openai-harmony says of the internet, in the place of what is true here."""


# --- the developer message ---

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def section(functions: list[Function]) -> str:
    return namespace("functions", [declaration(each) for each in functions]) if functions else ""


functions = st.builds(Function, texts, texts, st.none() | st.just({}) | st.just(PARAMETERS))


@example(None, [])
@example("", [])
@given(instructions=st.none() | texts, functions=st.lists(functions, max_size=3))
def test_any_developer_message_equals_that_of_openai_harmony(
    oracle: Oracle, instructions: str | None, functions: list[Function]
) -> None:
    ours = render.message(render.developer_text(instructions, section(functions)), "developer")

    assert unpack(ours.tokens).tolist() == oracle.developer_message(instructions, functions)


def test_the_document_shows_a_real_prompt() -> None:
    request = read_create(block("docs/harmony.md", "json request").encode(), store=True)
    sent = in_one_go(read_request(request, ENVELOPES))
    prompt = in_one_go(build_prompt(sent, request, [], CONTEXT_TOKENS, DATE)).tokens
    marks = {token: mark for mark, token in MARKS.items()} | {tokens.START: "\n<|start|>"}
    spelled = "".join(marks.get(id) or decode([id]) for id in prompt)
    assert spelled.strip() == block("docs/harmony.md", "harmony prompt")


def test_an_answers_length_and_format_have_sections_of_their_own() -> None:
    text = render.developer_text(
        "Be kind.", section([Function("now", "", None)]), verbosity="low", formats="# Formats\n\nF"
    )

    headings = [line for line in text.split("\n") if line.startswith("# ")]
    assert headings == ["# Instructions", "# Verbosity", "# Tools", "# Formats"]
    assert render.VERBOSITY["low"] in text
