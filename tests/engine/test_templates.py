"""What servers show of their chat templates: which of tools, and that nobody's words become marks."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from service.engine.port import EngineError, EngineRefused, EngineUnavailable
from service.engine.servers.speech import Disarming, Written, speech_of
from service.markup.speech import SHOWN, Shown, Transcript

MARKS = {"<tool_call>": 7, "</tool_call>": 8, "<|im_end|>": 9}


async def pieces(text: str) -> Sequence[tuple[int, str]]:
    return [(MARKS.get(each, 1), each if each in MARKS else "x") for each in text.split("\n")]


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
        (template("tools", refuses=EngineRefused("no tools")), SHOWN),
        (template(), Shown(tools=False, calls=False, outputs=False)),
        (template("outputs"), Shown(tools=False, calls=False)),
        (template("calls", "outputs"), Shown(tools=False)),
        (template("calls", refuses=EngineRefused("roles")), Shown(tools=False, calls=False, outputs=False)),
        (template("calls", refuses=EngineError("status 500")), Shown(tools=False, calls=False, outputs=False)),
    ],
)
async def test_what_a_template_shows_of_tools_is_seen_in_what_it_writes(written: Written, shown: Shown) -> None:
    assert (await speech_of(pieces, written, "smollm2")).shown == shown


async def test_a_server_that_tells_no_texts_is_believed_to_show_tools() -> None:
    async def silent(transcript: Transcript) -> None:
        return None

    assert (await speech_of(pieces, silent, "smollm2")).shown == SHOWN


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
