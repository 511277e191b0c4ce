"""The parts of tools that servers' chat templates show; and nobody's words become marks, wherever a prompt has them."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from service.engine.port import SHOWN, EngineError, EngineUnavailable, ShownTools, Transcript
from service.features.models.markup.families import KEEPS
from service.features.models.markup.messages import chat_messages
from service.features.models.speech import BREAK, MAX_KNOWN, PLACES, Disarming, Written, speech_of
from service.harmony.header import JSON_TYPE
from service.harmony.render import message

MARKS = (
    *("<|im_end|>", "</think>", "<\uff5ctool\u2581sep\uff5c>", "[INST]", "[gMASK]", "[e~[", "]~b]", "]~!b[", "]!d~["),
    *("<|eot_id|>", "<|start_header_id|>", "<start_of_turn>", "<|START_OF_TURN_TOKEN|>", "<|start_of_role|>", "<s>"),
    *("[/INST]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[|endofturn|]", "<seed:bos>", "<role>", "<|header_start|>"),
    *("<\uff5cUser\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<reserved_106>", "<|im_user|>", "<SPECIAL_10>"),
    *("<tool_call>", "</tool_call>", '<|"|>', "\uff5cDSML\uff5c", "]<]minimax[>[", "]<]start of image[>["),
)
"""Of many families, as their vocabularies have them."""


async def pieces(text: str) -> Sequence[tuple[int, str]]:
    """As a server cuts a text: lines that are marks are one piece."""
    return [(number, line) for number, line in enumerate(text.split("\n")) if line in MARKS]


async def disarmed(messages: object, tools: object = ()) -> Transcript:
    transcript = Transcript(msgspec.json.encode(messages), msgspec.json.encode(tools))
    return await Disarming().disarm(pieces, transcript)


@pytest.mark.parametrize("around", ["{0}{0}", "{0}{1}", "{2}{0}", "a{0}b\n<b>", "[{0}]"])
async def test_no_mark_is_left_where_marks_overlap_or_stand_in_others(around: str) -> None:
    for mark in MARKS:
        text = around.format(mark, mark[1:], mark[:-1])
        made = await disarmed([{"role": "user", "content": text}])
        said = json.loads(made.messages)[0]["content"]
        assert [each for each in MARKS if each in said] == []
        assert said.replace(BREAK, "") == text


async def test_a_mark_in_what_a_tool_says_of_itself_is_broken() -> None:
    for mark in MARKS:
        made = await disarmed([], [{"type": "function", "function": {"name": "f", "description": f"{mark}system"}}])
        assert mark not in json.loads(made.tools)[0]["function"]["description"]
        assert json.loads(made.tools)[0]["function"]["description"].endswith("system")


async def test_a_mark_in_an_option_of_the_template_is_broken() -> None:
    for mark in MARKS:
        transcript = Transcript(b"[]", options=msgspec.json.encode({"documents": f"a{mark}b"}))
        made = await Disarming().disarm(pieces, transcript)
        assert json.loads(made.options) == {"documents": f"a{mark[0]}{BREAK}{mark[1:]}b"}


@pytest.mark.parametrize("place", sorted(PLACES))
async def test_nobody_else_names_a_pictures_place_to_a_model_that_sees(place: str) -> None:
    made = await Disarming().disarm(pieces, by_user(f"a{place}b"), sees=True)
    assert json.loads(made.messages)[0]["content"] == f"a{place[0]}{BREAK}{place[1:]}b"
    assert await Disarming().disarm(pieces, by_user(f"a{place}b")) == by_user(f"a{place}b")


def by_user(text: str) -> Transcript:
    return Transcript(msgspec.json.encode([{"role": "user", "content": text}]))


async def test_a_mark_that_was_known_is_broken_where_what_is_known_is_given_up() -> None:
    disarming = Disarming()
    others = " ".join(f"<{number}>" for number in range(MAX_KNOWN - 1))
    await disarming.disarm(pieces, by_user(f"<|im_end|> {others}"))
    made = await disarming.disarm(pieces, by_user("<|im_end|> <new>"))
    assert json.loads(made.messages)[0]["content"] == f"<{BREAK}|im_end|> <new>"


async def test_what_was_no_mark_of_a_servers_model_may_be_one_of_the_next() -> None:
    marks = list[str]()

    async def now(text: str) -> Sequence[tuple[int, str]]:
        return [(0, line) for line in text.split("\n") if line in marks]

    disarming = Disarming()
    assert await disarming.disarm(now, by_user("<|im_end|>")) == by_user("<|im_end|>")
    marks.append("<|im_end|>")
    await disarming.speech_of(now, template(), "qwen3")
    assert await disarming.disarm(now, by_user("<|im_end|>")) == by_user(f"<{BREAK}|im_end|>")


async def test_however_many_texts_look_like_marks_so_many_are_asked_about_at_once() -> None:
    asked = list[int]()

    async def counted(text: str) -> Sequence[tuple[int, str]]:
        asked.append(text.count("\n") + 1)
        return await pieces(text)

    many = " ".join(f"<{number}>" for number in range(2 * MAX_KNOWN))
    made = await Disarming().disarm(counted, by_user(f"{many} <|im_end|>"))
    assert asked == [MAX_KNOWN, MAX_KNOWN, 1]
    assert json.loads(made.messages)[0]["content"] == f"{many} <{BREAK}|im_end|>"


def shown(arguments: str) -> str:
    """The arguments of a call as a template gets them."""
    said = message(arguments, "assistant", channel="commentary", recipient="functions.f", content_type=JSON_TYPE)
    return chat_messages([said], {})[0]["tool_calls"][0]["function"]["arguments"]


async def test_a_mark_in_arguments_that_a_template_decodes_is_broken() -> None:
    for mark in MARKS:
        escaped = "".join(rf"\u{ord(each):04x}" for each in mark)
        made = await disarmed([{"role": "assistant", "content": shown(f'{{"a": "{escaped}"}}')}])
        said = json.loads(json.loads(made.messages)[0]["content"])
        assert said == {"a": f"{mark[0]}{BREAK}{mark[1:]}"}


def test_arguments_say_the_same_without_escapes() -> None:
    arguments = r'{"a": "\\u0041\\\u0041\"\n\u0000\ud83d\ude00\/\u2028\u0022\u005c\u005cu0041"}'
    assert str(json.loads(shown(arguments))) == str(json.loads(arguments))


def template(*shown: str, refuses: EngineError | None = None) -> Written:
    """One that shows some of `tools`, `calls` and `outputs`; it `refuses` outputs if it is told how."""

    async def written(transcript: Transcript) -> str:
        words: list[str] = [transcript.tools.decode()] if "tools" in shown else []
        messages: list[dict[str, Any]] = json.loads(transcript.messages)
        for each in messages:
            if each["role"] == "tool" and refuses is not None:
                raise refuses
            words += [json.dumps(each["tool_calls"])] if "calls" in shown and "tool_calls" in each else []
            words += [each["content"]] if each["role"] != "tool" or "outputs" in shown else []
        return "\n".join(words)

    return written


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (template("tools"), SHOWN),
        (template(), ShownTools(tools=False, calls=False, outputs=False)),
        (template("outputs"), ShownTools(tools=False, calls=False)),
        (template("calls", "outputs"), ShownTools(tools=False)),
        (template("calls", refuses=EngineError("status 500")), ShownTools(tools=False, calls=False, outputs=False)),
    ],
)
async def test_what_a_template_shows_of_tools_is_seen_in_what_it_writes(written: Written, shown: ShownTools) -> None:
    assert (await speech_of(pieces, written, "smollm2")).shown == shown


async def test_a_server_that_goes_away_meanwhile_has_said_nothing() -> None:
    with pytest.raises(EngineUnavailable):
        await speech_of(pieces, template(refuses=EngineUnavailable("gone")), "smollm2")


async def test_only_marks_of_ours_stay_marks() -> None:
    own = " 0123 "
    said = f"Say <tool_call> and <{own}tool_call> and <div>."
    transcript = Transcript(msgspec.json.encode([{"role": "user", "content": said}]), own=own)
    disarmed = await Disarming().disarm(pieces, transcript)
    (message,) = json.loads(disarmed.messages)
    assert message["content"] == "Say <\u2060tool_call> and <tool_call> and <div>."
    assert disarmed.own == ""


@pytest.mark.parametrize(("option", "value"), [*KEEPS.items(), ("other", True)])
async def test_the_option_that_keeps_earlier_reasoning_is_found_in_what_a_template_writes(
    option: str, value: bool
) -> None:
    async def written(transcript: Transcript) -> str:
        kept = json.loads(transcript.options).get(option) is value
        return transcript.messages.decode() if kept else ""

    keeps = ((option, value),) if option in KEEPS else ()
    assert (await speech_of(pieces, written, "qwen3.6")).keeps == keeps


async def test_where_no_prompt_is_shown_the_familys_option_counts() -> None:
    async def untold(transcript: Transcript) -> None:
        return None

    assert (await speech_of(pieces, untold, "glm-5")).keeps == (("clear_thinking", False),)
    assert (await speech_of(pieces, untold, "qwen3.6-27b")).keeps == (("preserve_thinking", True),)
    assert (await speech_of(pieces, untold, "qwen3-8b")).keeps == ()


async def test_a_template_without_the_familys_option_is_not_given_it() -> None:
    async def written(transcript: Transcript) -> str:
        return "Hello!"

    assert (await speech_of(pieces, written, "qwen3.6-27b")).keeps == ()
