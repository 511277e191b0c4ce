"""Transcripts of the machine: commands, a line of dashes, and all that came of them, in text files that people read.

    sample TEXT     sample the tokens of a text in which Harmony's marks are written out; \\n is a new line
    bytes F0 9F …   sample tokens of one byte each
    end ENDING      the generation ends: stop, length, abort, timeout or error

`end` also shows the usage and the messages kept for later prompts. Empty lines part the blocks; one that begins with #
is a comment, and the file's first one says why it exists. `python -m tests.support.responses.transcripts` writes all
of them anew: read the difference before you commit it. A regression is a new file.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from service.api.events import Event
from service.api.response import ResponseError
from service.harmony.tokens import FIRST_SPECIAL, decode, unpack
from service.responses.output.machine import Ending, Machine
from tests.support import ROOT
from tests.support.responses import samples
from tests.support.responses.samples import MARKS, NOW, as_json

SCENARIOS = ROOT / "tests" / "core" / "responses" / "output" / "scenarios"
DASHES = "----"
_NAMES = {mark: name for name, mark in MARKS.items()}


def transcript(source: str) -> str:
    """The transcript with its output made anew from its comments and commands."""
    machine = samples.machine()
    machine.begin()
    blocks: list[str] = []
    for block in source.strip("\n").split("\n\n"):
        command = block.splitlines()[0]
        blocks.append(block if command.startswith("#") else "\n".join([command, DASHES, *_run(machine, command)]))
    return "\n\n".join(blocks) + "\n"


def _run(machine: Machine, line: str) -> list[str]:
    command, _, argument = line.partition(" ")
    if command == "sample":
        return _shown(machine.feed(samples.harmony(argument.replace("\\n", "\n"))))
    if command == "bytes":
        return _shown(machine.feed([samples.byte_token(byte) for byte in bytes.fromhex(argument)]))
    if command == "end":
        return _ended(machine, Ending(argument))
    raise ValueError(f"no command of a transcript: {line}")


def _ended(machine: Machine, ending: Ending) -> list[str]:
    events = machine.end(ending)
    error = ResponseError("server_error", "it broke") if ending in (Ending.ERROR, Ending.TIMEOUT) else None
    response = machine.result(ending, now=NOW, error=error)
    events += machine.terminal(response)
    usage = as_json(response)["usage"]
    counted = f"{usage['output_tokens']} tokens, {usage['output_tokens_details']['reasoning_tokens']} of reasoning"
    kept = [
        f"keeps {notation(unpack(message.tokens))}" if message.tokens else f"notes {message.role} {message.name}"
        for message in machine.messages
    ]
    return [*_shown(events), f"{response.status}: {counted}", *kept]


def _shown(events: list[Event]) -> list[str]:
    """A line for each event: its number, its type without the prefix they share, and what it says."""
    lines: list[str] = []
    for each in map(as_json, events):
        words = [str(each["sequence_number"]), each["type"].removeprefix("response."), *_words(each)]
        lines.append(" ".join(words))
    return lines


def _words(event: dict[str, Any]) -> Iterator[str]:
    item: dict[str, Any] = event.get("item", {})
    yield from (str(item[key]) for key in ("type", "phase", "name", "status") if key in item)
    yield from (json.dumps(event[key], ensure_ascii=False) for key in ("delta", "text", "arguments") if key in event)


def notation(ids: Sequence[int]) -> str:
    """Tokens as a text in which the marks are written out."""
    pieces = [
        "".join(_NAMES[token] for token in run) if special else decode(run)
        for special, run in groupby(ids, lambda token: token >= FIRST_SPECIAL)
    ]
    return "".join(pieces).replace("\n", "\\n")


def main() -> None:
    for path in sorted(SCENARIOS.glob("*.txt")):
        path.write_text(transcript(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
