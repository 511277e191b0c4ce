"""Models whose chat template shows no tools: what they are told of them, and that their parsers read what that says."""

import json
from typing import Any

import pytest

from service.engine.port import ShownTools
from service.features.models.markup.families import MARKUPS
from service.features.models.markup.messages import form_of, messages_told, tools_told
from tests.support.markup.streams import messages_of, parser, segments_of, tokens_of

NONE = ShownTools(tools=False, calls=False, outputs=False)
TOLD = [markup for markup in MARKUPS if form_of(markup, NONE)]
OWN = " 5ecre7 "

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Look <here>.", "parameters": {}}}


def called(id: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def answered(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


PARIS, ROME = '{"city": "Paris"}', '{"city": "Rome", "near": "</tool_call>"}'
SAID = [
    {"role": "user", "content": "Both?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [called("a", PARIS), called("b", ROME)]},
    answered("a", "21"),
    answered("b", "25"),
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "Warm."},
    {"role": "user", "content": "Thanks."},
]


def told(markup: str, shown: ShownTools = NONE, own: str = "") -> list[dict[str, Any]]:
    form = form_of(markup, shown)
    assert form is not None
    return messages_told(SAID, form, shown, own)


@pytest.mark.parametrize("markup", TOLD)
def test_calls_are_told_as_the_parser_reads_them(markup: str) -> None:
    text = told(markup)[1]["content"]
    messages = messages_of(segments_of(parser(markup), [tokens_of(f"{text}<|im_end|>")]))
    assert [(each.to, each.text.strip()) for each in messages] == [
        ("final", "I look."),
        ("functions.get_weather", PARIS),
        ("functions.get_weather", ROME),
    ]
    assert all(each.stop is not None for each in messages)


def test_what_a_template_shows_is_not_told() -> None:
    assert told("hermes", ShownTools(tools=False)) == SAID
    outputs = told("hermes", ShownTools(tools=False, outputs=False))
    assert [each["role"] for each in outputs] == ["user", "assistant", "user", "assistant", "user"]
    assert "tool_calls" in outputs[1]
    calls = told("hermes", ShownTools(tools=False, calls=False))
    assert "tool_calls" not in calls[1]
    assert calls[2:] == SAID[2:]


def test_what_came_of_calls_is_one_turn_with_the_words_behind_it() -> None:
    assert told("hermes")[2] == {
        "role": "user",
        "content": "<tool_response>\n21\n</tool_response>\n<tool_response>\n25\n</tool_response>\nAnd?",
    }
    assert told("hermes")[3:] == SAID[5:]


def test_pictures_stay_pictures_beside_texts_of_ours() -> None:
    seen, sent = ({"type": "image_url", "image_url": {"url": f"picture:{each}/5"}} for each in ("5een", "5ent"))
    form = form_of("hermes", NONE)
    assert form is not None
    messages = [*SAID[:2], {**answered("a", ""), "content": [seen]}, {"role": "user", "content": [sent]}]
    parts = messages_told(messages, form, NONE, "")[2]["content"]
    assert [part for part in parts if part["type"] != "text"] == [seen, sent]
    assert "".join(part.get("text", "") for part in parts) == "<tool_response>\n\n</tool_response>\n"


@pytest.mark.parametrize("markup", TOLD)
def test_marks_of_ours_alone_have_what_makes_them_ours(markup: str) -> None:
    form = form_of(markup, NONE)
    assert form is not None
    text = tools_told(form, [TOOL], OWN)
    assert json.dumps(TOOL["function"], separators=(",", ":")) in text
    assert f"<{OWN}tools>" in text
    told_calls = told(markup, own=OWN)[1]["content"]
    assert ROME in told_calls
    for mark in MARKUPS[markup].spellings:
        assert mark not in text
        assert mark not in told_calls.replace(ROME, "")
