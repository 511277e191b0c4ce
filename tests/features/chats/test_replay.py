"""A history that a client sends back over Chat Completions or Messages is never refused: each kind is read, shown as a
text, or left out and named.
"""

import json
from typing import Any

import msgspec
import pytest

from service.api.replay import BLOCKS, CHAT_PARTS
from service.api.request import ChatBody, read_create
from service.errors import InvalidRequest
from service.features.chats.chat import ChatLimits, read_chat
from service.features.chats.messages import read_messages
from service.harmony.messages import text_of
from service.steps import in_one_go
from tests.core.api.test_replay import CUT, LONG, SAID, USER, broken
from tests.support.responses.requests import Json, prompt, read_checked

LIMITS = ChatLimits(messages=64, tools=300, tools_bytes=1 << 20)
TOOL: Json = {"name": "f", "input_schema": {"type": "object", "properties": {}}}


def messages(*sent: Any, tools: Any = None, refuses: bool = False) -> tuple[list[str], list[str], list[str], list[str]]:
    """The texts that a prompt of Messages shows, the kinds and the tools that are left out, and those that are told."""
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": sent, "tools": tools}).encode()
    told = in_one_go(read_messages(body, LIMITS._replace(refuses=refuses), counts=False))
    texts, left_out, tools_told = _prompt(told.body)
    return texts, [*told.left_out, *left_out], list(told.tools_left_out), tools_told


def chat(*sent: Any) -> tuple[list[str], list[str]]:
    told = in_one_go(read_chat(json.dumps({"model": "m", "messages": sent}).encode(), LIMITS))
    texts, left_out, _ = _prompt(told.body)
    return texts, [*told.left_out, *left_out]


def _prompt(body: bytes) -> tuple[list[str], list[str], list[str]]:
    request = read_create(body, store=True, kind=ChatBody)
    given = read_checked(request)
    made = prompt(given=given, input=msgspec.json.decode(request.input), instructions=request.instructions)
    texts = [text_of(message) for message in made.messages if message.tokens]
    return texts, list(given.gathered.left_out), [callee.name for callee in given.rules.callees]


def said(*blocks: Any) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def heard(*blocks: Any) -> Json:
    return {"role": "user", "content": list(blocks)}


def test_what_other_services_let_pass_is_read_in_its_place_by_chat_and_messages() -> None:
    id = LONG["call_id"]
    call = {"id": id, "type": "function", "function": {"name": "f", "arguments": CUT}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    output = {"role": "tool", "tool_call_id": id, "content": "done"}
    assert chat(USER, called, USER, output) == (["Hi", CUT, "Hi", "done"], [])
    nothing = {"type": "thinking", "thinking": "", "signature": ""}
    used = {"type": "tool_use", "id": id, "name": "f", "input": {"INVALID_JSON": CUT}}
    result = {"type": "tool_result", "tool_use_id": id, "content": "done"}
    assert messages(USER, said(nothing, used), heard(WORD, result))[:2] == (["Hi", CUT, "Hello.", "done"], [])


MEMBERS = ["id", "name", "input", "text", "source", "content", "tool_use_id", "thinking", "signature", "data", "title"]
WORD = {"type": "text", "text": "Hello."}


@pytest.mark.parametrize("kind", [*BLOCKS, "telepathy", "", "a\nb"])
def test_a_broken_block_takes_nothing_with_it_and_is_never_a_refusal(kind: str) -> None:
    for block in broken(kind, MEMBERS):
        if kind == "compaction" and block.get("content") == "x":
            continue  # it stands for all before it
        texts, *_ = messages(heard(WORD, block), said(block, WORD), USER, said(WORD, block), USER)
        assert (texts.count("Hi"), sum("Hello." in text for text in texts)) == (2, 3), (block, texts)
        used = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": [WORD, block]}
        if kind != "tool_result":
            texts, *_ = messages(USER, said(used), heard(result, block, WORD))
            assert sum("Hello." in text for text in texts) == 2, block


def test_what_servers_ran_is_shown_with_what_came_of_it_and_without_what_is_sealed() -> None:
    found = {"type": "web_search_result", "title": "Tides", "url": "https://a.example", "encrypted_content": "Eq0x"}
    for kind, used, content, words in (
        ("web_search_tool_result", "server_tool_use", [found], "https://a.example"),
        ("bash_code_execution_tool_result", "server_tool_use", {"type": "x", "stdout": "42\n"}, "42"),
        ("tool_search_tool_result", "server_tool_use", {"tool_references": [{"tool_name": "f"}]}, "tool_name"),
        ("mcp_tool_result", "mcp_tool_use", [WORD], "Hello."),
        ("advisor_tool_result", "server_tool_use", {"type": "advisor_result", "text": "Go on."}, "Go on."),
    ):
        call = {"type": used, "id": "s1", "name": "look", "input": {"query": "x"}}
        result = {"type": kind, "tool_use_id": "s1", "content": content}
        texts, left_out, *_ = messages(USER, said(WORD, call, result, WORD), USER)
        assert [*texts[:3], *texts[4:]] == ["Hi", "Hello.", '{"query": "x"}', "Hello.", "Hi"], kind
        assert (words in texts[3], "Eq0x" in texts[3], left_out) == (True, False, []), kind
        assert messages(USER, said(WORD, call), USER)[:2] == (["Hi", "Hello.", "Hi"], [used])
        with pytest.raises(InvalidRequest, match=used):
            messages(USER, said(WORD, call, result), USER, refuses=True)


def test_a_turn_of_the_models_without_words_parts_the_history_from_what_is_new() -> None:
    asked = heard(
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    )
    for content in (
        [],
        "",
        None,
        [{"type": "text", "text": ""}],
        [{"type": "telepathy"}],
        [{"type": "redacted_thinking", "data": "x"}],
    ):
        texts, *_ = messages(asked, {"role": "assistant", "content": content}, USER)
        assert ("can't read it" in texts[0], texts[1:]) == (True, ["Hi"]), content
    pdf = {"role": "user", "content": [{"type": "file", "file": {"file_data": "JVBERi0xLjcK"}}]}
    for content in ("", None):
        assert chat(pdf, {"role": "assistant", "content": content}, USER)[1] == ["input_file"]


def test_a_server_that_pauses_its_turn_gives_the_result_in_the_next() -> None:
    call = {"type": "server_tool_use", "id": "s1", "name": "look", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [WORD]}
    texts, left_out, *_ = messages(USER, said(call), said(result, WORD), USER)
    assert (texts[1], "Hello." in texts[2], left_out) == ("{}", True, [])


def test_documents_and_found_passages_are_texts() -> None:
    source = {"type": "content", "content": [{"type": "text", "text": "High at noon."}]}
    document = {
        "type": "document",
        "source": source,
        "title": "Tides",
        "context": "Of Brest.",
        "citations": {"enabled": True},
    }
    passage = {
        "type": "search_result",
        "title": "Tides",
        "source": "a.txt",
        "content": [{"type": "text", "text": "Low."}],
    }
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjcK"}}
    texts, left_out, *_ = messages(heard(document, passage, pdf), said(WORD), USER)
    assert all(words in texts[0] for words in ("Of Brest.", "High at noon.", "Tides (a.txt)", "Low.", "can't read it"))
    assert left_out == ["citations", "input_file"]


def test_a_summary_of_anthropics_stands_for_all_before_it() -> None:
    summary = {"type": "compaction", "content": "We spoke of tides."}
    texts, *_ = messages(USER, said(summary, WORD), USER)
    assert texts == ["[A summary of the conversation so far:]\nWe spoke of tides.", "Hello.", "Hi"]


def test_tools_that_wait_to_be_found_are_told_of_once_they_are_and_anthropics_own_are_left_out() -> None:
    own = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
    late = [
        TOOL | {"name": "mcp__plugin_" + "x" * 78, "defer_loading": True},
        TOOL | {"name": "g", "defer_loading": True},
    ]
    search = TOOL | {"name": "ToolSearch"}
    used = {"type": "tool_use", "id": "a", "name": "ToolSearch", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "g"}]}
    assert messages(USER, tools=[*own, search, *late])[2:] == (["web_search_20250305", "bash_20250124"], ["ToolSearch"])
    texts, left_out, _, told = messages(USER, said(used), heard(result), tools=[search, *late])
    assert (texts[-1], left_out, sorted(told)) == ("Loaded: g.", [], ["ToolSearch", "g"])
    assert len(messages(USER, tools=late)[3]) == 2
    assert len(messages(USER, tools=[TOOL | {"name": f"f{number}"} for number in range(200)])[3]) == 200


def test_chats_of_before_and_of_other_services_go_on() -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answer = {"role": "function", "name": "f", "content": "done"}
    spoken = {"role": "assistant", "audio": {"id": "a1"}, "content": "Hello."}
    sound = {
        "role": "user",
        "content": [{"type": "input_audio", "input_audio": {"data": ""}}, {"type": "text", "text": "Hi"}],
    }
    assert chat(USER, called, answer, spoken, USER) == (["Hi", "{}", "done", "Hello.", "Hi"], ["audio"])
    texts, left_out = chat(sound, spoken, USER)
    assert texts[0].endswith("Hi")
    assert left_out == ["input_audio", "audio"]
    for part in CHAT_PARTS:
        for junk in broken(part, ["text", "image_url", "file", "input_audio"]):
            texts, _ = chat({"role": "user", "content": [WORD, junk]}, SAID, USER)
            assert ("Hello." in texts[0], texts[1:]) == (True, ["Hello.", "Hi"]), junk
    for junk in (None, 5, {}, {"role": "robot"}, {"role": "assistant", "tool_calls": [{}, 5]}, {"role": "tool"}):
        assert chat(USER, junk, SAID, USER)[0] == ["Hi", "Hello.", "Hi"], junk
    lost = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "telepathy"}]}
    assert chat(USER, lost, {"role": "tool", "tool_call_id": "a", "content": "done"})[0] == ["Hi"]


def test_a_chat_of_instructions_alone_is_answered() -> None:
    for role in ("system", "developer"):
        assert chat({"role": role, "content": "Say hi."})[0] == ["# Instructions\n\nSay hi."]
    with pytest.raises(InvalidRequest, match="at least one"):
        chat()
