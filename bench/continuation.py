"""What the prompt of a 200-turn continuation costs: joining kept tokens, against rendering kept JSON.

    scripts/bench continuation [--check]

Ours decodes the store's blobs, leaves out old analysis and joins what is left. The rival reads each turn's
JSON into openai-harmony's messages and renders them; it is spared the old analysis before it builds any
message of it. Both give the same ids, which is asserted. They run in turns, so that whatever else the machine
does hits both. Only the ratio holds from one machine to another.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from openai_harmony import (
    Conversation,
    HarmonyEncoding,
    Message,
    RenderConversationConfig,
    Role,
    SystemContent,
)

from service.harmony.render import PROMPT_END, message, system_message
from service.harmony.tokens import encode, unpack
from service.responses.prompt.build import in_prompt
from store.codec import StoredTurns, encode_messages

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tests' oracle is not installed

from tests.support.oracles.harmony import Oracle  # noqa: E402

TARGET = 50
TURNS = 200
TURN_TOKENS = {"user": 40, "analysis": 120, "final": 325}
"""The messages of a turn by their channel, and how long each one is."""

OUR_CALLS = 5
"""How often ours runs for each run of the rival: it is so short that one run tells little."""

SYSTEM = {
    "identity": "You are ChatGPT, a large language model trained by OpenAI.",
    "date": "2025-06-28",
    "effort": "medium",
}
WORDS = [
    "the",
    "answer",
    "of",
    "a",
    "model",
    "is",
    "what",
    "users",
    "read,",
    "größer",
    "第三",
    "f(x) = 2",
    "🙂",
]

Said = tuple[str, str | None, str]
"""Role, channel and text."""


def text_of(count: int) -> str:
    """A text of about `count` tokens."""
    words = random.choices(WORDS, k=count)
    while len(encode(" ".join(words))) > count:
        words.pop()
    return " ".join(words)


def turn() -> list[Said]:
    """What one turn added."""
    return [
        ("user", None, text_of(TURN_TOKENS["user"])),
        ("assistant", "analysis", text_of(TURN_TOKENS["analysis"])),
        ("assistant", "final", text_of(TURN_TOKENS["final"])),
    ]


def as_blob(turn: list[Said]) -> bytes:
    """A turn as the store keeps it."""
    return encode_messages(tuple(message(text, role, channel=channel) for role, channel, text in turn))


def as_json(turn: list[Said]) -> str:
    """A turn as a service keeps it that stores openai-harmony's messages."""
    return json.dumps([{"role": role, "channel": channel, "content": text} for role, channel, text in turn])


def join(blobs: list[bytes], question: str) -> "array[int]":
    """Our way: the prompt's ids."""
    chain = [stored for turn in StoredTurns(blobs) for stored in turn]
    system = system_message(**SYSTEM)
    shown = in_prompt([*chain, message(question, "user")])
    return unpack(b"".join((system, *(each.tokens for each in shown), PROMPT_END)))


def render(encoding: HarmonyEncoding, turns: list[str], question: str) -> list[int]:
    """The rival's way: the prompt's ids."""
    kept: list[dict[str, Any]] = [said for turn in turns for said in json.loads(turn)]
    last_final = max(place for place, said in enumerate(kept) if said["channel"] == "final")
    shown = [said for place, said in enumerate(kept) if place > last_final or said["channel"] != "analysis"]
    system = SystemContent.new().with_conversation_start_date(SYSTEM["date"])
    messages = [
        Message.from_role_and_content(Role.SYSTEM, system),
        *map(Message.from_dict, shown),
        Message.from_role_and_content(Role.USER, question),
    ]
    return encoding.render_conversation_for_completion(
        Conversation(messages=messages), Role.ASSISTANT, RenderConversationConfig(auto_drop_analysis=False)
    )


def seconds(action: Callable[[], object]) -> float:
    """How long one call of `action` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def tell(name: str, times: list[float], size: int) -> None:
    """Print a row: what was run, its median and p90, and the bytes it reads."""
    p90 = quantiles(times, n=10)[-1]
    print(f"{name:<28} {median(times) * 1e3:>10.2f} {p90 * 1e3:>10.2f} {size / 1e6:>10.2f}")


def measure(rounds: int) -> float:
    """Print the table; how many times faster ours is, by the medians."""
    random.seed(1)
    conversation = [turn() for _ in range(TURNS)]
    question = text_of(TURN_TOKENS["user"])
    blobs = [as_blob(turn) for turn in conversation]
    texts = [as_json(turn) for turn in conversation]
    with tempfile.TemporaryDirectory() as folder:
        encoding = Oracle(Path(folder)).encoding
    prompt = join(blobs, question)
    assert prompt.tolist() == render(encoding, texts, question), "the two ways give different prompts"

    ours: list[float] = []
    rival: list[float] = []
    for _ in range(rounds):
        rival.append(seconds(lambda: render(encoding, texts, question)))
        ours += [seconds(lambda: join(blobs, question)) for _ in range(OUR_CALLS)]
    print(f"{TURNS} turns, a prompt of {len(prompt)} tokens\n")
    print(f"{'':<28} {'median ms':>10} {'p90 ms':>10} {'MB read':>10}")
    tell("join kept tokens", ours, sum(map(len, blobs)))
    tell("render kept JSON", rival, sum(len(text.encode()) for text in texts))
    return median(rival) / median(ours)


def main() -> int:
    """0, or 1 when --check is given and the target missed."""
    parser = argparse.ArgumentParser(description="the prompt of a long continuation: join tokens or render JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    parser.add_argument("--rounds", type=int, default=20, help="how often the rival runs (default 20)")
    options = parser.parse_args()
    ratio = measure(options.rounds)
    print(f"continuation: {ratio:.1f}x faster (target >= {TARGET}x)")
    return 1 if options.check and ratio < TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
