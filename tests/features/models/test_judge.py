"""Our parsers beside vLLM 0.33's, over what makers of models documented, token by token. Its readings are recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.markup.streams import SPECIAL, messages_of, parser, segments_of, tokens_of
from tests.support.markup.transcripts import DOCUMENTED, Transcript

RECORDED = Path(__file__).with_name("vllm_readings.json")


def ours(transcript: Transcript) -> dict[str, Any]:
    """What we read, as vLLM shows it."""
    tokens = tokens_of(transcript.text)
    reader = parser(transcript.markup, list(SPECIAL), thinking=transcript.thinking)
    messages = messages_of(segments_of(reader, [[token] for token in tokens]))
    return {
        "reasoning": "".join(each.text for each in messages if each.to == "analysis"),
        "content": "".join(each.text for each in messages if each.to == "final"),
        "calls": [
            {"name": each.to.removeprefix("functions."), "arguments": each.text}
            for each in messages
            if each.to.startswith("functions.")
        ],
    }


def value_of(arguments: str) -> Any:
    """What arguments say, or the text that says nothing."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def compared(reading: dict[str, Any]) -> dict[str, Any]:
    """A reading without what templates strip, its arguments as values."""
    calls = [(call["name"], value_of(call["arguments"])) for call in reading["calls"]]
    return {"reasoning": reading["reasoning"].strip(), "content": reading["content"].strip(), "calls": calls}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_transcript_is_read_as_vllm_reads_it(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    assert compared(ours(DOCUMENTED[name])) == compared(recorded)
