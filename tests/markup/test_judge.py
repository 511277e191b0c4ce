"""Our parsers beside vLLM's, over what makers of models documented, token by token. Recorded: it needs no vLLM.

`python -m tests.markup.test_judge` records vLLM's readings anew.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.markup import judge
from tests.support.markup.streams import SCHEMAS, SPECIAL, messages_of, parser, segments_of, tokens_of
from tests.support.markup.transcripts import DIFFERENCES, DOCUMENTED, Transcript

RECORDED = Path(__file__).with_name("vllm_readings.json")
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"


def case(transcript: Transcript) -> dict[str, Any]:
    """A transcript as the judge gets it."""
    tokens = tokens_of(transcript.text.removesuffix("<|im_end|>"))
    return {
        "markup": transcript.markup,
        "tokens": [[token.id, token.text] for token in tokens],
        "special": SPECIAL,
        "tools": SCHEMAS,
        "thinking": transcript.thinking,
        "reasons": transcript.reasons,
    }


def judged() -> dict[str, Any]:
    cases = json.dumps({name: case(transcript) for name, transcript in DOCUMENTED.items()})
    done = subprocess.run(
        [PYTHON, judge.__file__], input=cases, capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout)


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
    same = compared(ours(DOCUMENTED[name])) == compared(recorded)
    assert same == (name not in DIFFERENCES), (ours(DOCUMENTED[name]), recorded)


@pytest.mark.vllm
def test_vllm_reads_what_was_recorded() -> None:
    assert judged() == json.loads(RECORDED.read_text())


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(judged(), indent=1, sort_keys=True) + "\n")
