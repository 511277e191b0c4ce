"""What models that know no Harmony cost the serving process: a token of each markup, and a conversation's 50th turn.

    scripts/bench dialects [--check] [--json]

A token's cost is that of a whole turn, by its tokens: reasoning, an answer and a call, as each family writes them, from
the engine's chunk to the response's events, one token at a time and eight. Beside it, in turns, the same words in
Harmony. Its machine makes an event of each token; that of a markup makes one of each chunk, as its engine gives text.

A turn's cost is all CPU of the service's process, its threads' too, for a streamed turn of 446 tokens: the first of a
conversation, and the 50th. The engine is a stand-in for a vLLM server in a process of its own (_templated.py), so what
the template and the cutting of texts take is not in it; sending it 100 kB of messages and 24,000 ids, and reading as
many back, is. Tokens come at one a ms, as from a fast model, or all at once, which leaves little but what grows.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import HOST, Client, Server  # noqa: E402
from bench._templated import END, SPECIAL, cut, prose  # noqa: E402
from bench.stream import base_response  # noqa: E402
from service.api.tools.callee import Callee  # noqa: E402
from service.harmony import tokens  # noqa: E402
from service.markup.chat import Chat  # noqa: E402
from service.markup.families import FAMILIES, MARKS  # noqa: E402
from service.responses.output.machine import Ending, Machine  # noqa: E402
from service.responses.rules import Rules  # noqa: E402
from tests.support.markup.writing import WRITING, Turn, plain_json, written  # noqa: E402

TARGET_TOKEN = 1.5
"""Times Harmony's, for a token of the median family, at one token at a time."""

TARGET_TURN = 1.3
"""Times the first turn's, for the 50th, at a token each ms."""

MOST_ADDED_MS = 10.0
"""CPU that the 50th turn may take beyond the first, whatever the pace."""

HARMONY = "harmony"
REASONED, ANSWERED, ARGUED = 500, 1000, 400
"""Tokens of a turn whose parser is measured."""

DAYS = 40
"""Its call has so many small arguments, beside a long one."""

CHUNKS = (1, 8)
TURN_ROUNDS = 9

PATH = "/v1/responses"
TURNS = 50
ASKED = 40
"""Tokens of what the user says in each turn."""

CONVERSATIONS = ("hermes", "qwen3")
"""A family whose prompts only grow, and one whose template drops reasoning."""

PACES = {"a token each ms": 1, "all at once": 0}
"""By the temperature that asks the stand-in for it."""

Chunk = tuple[Sequence[int], str]


class Way(NamedTuple):
    """What is measured of a family: the rules of its response, its turn as ids with their text, and its calls."""

    rules: Rules
    sampled: Sequence[tuple[int, str]]
    calls: int

    def chunks(self, size: int) -> list[Chunk]:
        """The turn as an engine gives it, so many tokens at a time."""
        parts = [self.sampled[at : at + size] for at in range(0, len(self.sampled), size)]
        return [([id for id, _ in part], "".join(text for _, text in part)) for part in parts]


# --- a token ---


def ways() -> dict[str, Way]:
    """Harmony, and every family, each with the same words."""
    ids = tokens.encode(prose(REASONED + ANSWERED + ARGUED))
    parts = ids[:REASONED], ids[REASONED:-ARGUED], ids[-ARGUED:]
    thought, said, argued = (tokens.decode(part).strip() for part in parts)
    arguments = {"city": argued, **{f"day{number}": number for number in range(DAYS)}}
    turn = Turn(thought, said, [("get_weather", arguments)])
    callees = (Callee("get_weather"),)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {
        HARMONY: Way(Rules(callees), [(id, "") for id in _harmony(turn, plain_json(arguments))], 1),
        **{
            name: Way(
                Rules(callees, chat=_chat(name, schema)),
                cut(written(family.markup, turn)),
                int(WRITING[family.markup].call is not None),
            )
            for name, family in FAMILIES.items()
        },
    }


def _harmony(turn: Turn, arguments: str) -> list[int]:
    assistant = [tokens.START, *tokens.encode("assistant")]
    return [
        *(tokens.CHANNEL, *tokens.encode("analysis"), tokens.MESSAGE, *tokens.encode(turn.reasoning), tokens.END),
        *(*assistant, tokens.CHANNEL, *tokens.encode("final"), tokens.MESSAGE, *tokens.encode(turn.text), tokens.END),
        *(*assistant, *tokens.encode(" to=functions.get_weather"), tokens.CHANNEL, *tokens.encode("commentary json")),
        *(tokens.MESSAGE, *tokens.encode(arguments), tokens.CALL),
    ]


def _chat(family: str, schema: dict[str, Any]) -> Chat:
    return Chat(
        family=family,
        marks={mark: SPECIAL[mark] for mark in (*MARKS, END)},
        ends=(SPECIAL[END],),
        names={"functions.get_weather": "get_weather"},
        schemas=json.dumps({"get_weather": schema}).encode(),
        opening=b"[]",
        history=b"[]",
        tools=b"[]",
        options=b"{}",
    )


def token_us(way: Way, chunks: Sequence[Chunk]) -> float:
    """What a token of the turn takes, from its chunk to its events."""
    machine = Machine(base_response(), way.rules, 1)
    machine.begin()
    began = time.process_time()
    for ids, text in chunks:
        machine.feed(ids, None, text)
    machine.end(Ending.STOP)
    taken = time.process_time() - began
    assert machine.calls == way.calls, "the turn was read as something else"
    return taken / len(way.sampled) * 1e6


def measured_tokens(rounds: int) -> dict[int, dict[str, float]]:
    """What a token takes, by how many come at a time and by the family; the least of some rounds."""
    found: dict[int, dict[str, float]] = {}
    known = ways()
    for size in CHUNKS:
        chunks = {name: way.chunks(size) for name, way in known.items()}
        runs = [{name: token_us(way, chunks[name]) for name, way in known.items()} for _ in range(rounds + 1)][1:]
        found[size] = {name: min(run[name] for run in runs) for name in known}
    return found


# --- a turn ---


def _body(family: str, words: str, after: str | None, **more: Any) -> bytes:
    return json.dumps({"model": family, "input": words, "previous_response_id": after, **more}).encode()


async def conversation(client: Client, family: str) -> str:
    """A conversation of all turns but the last; its last response."""
    after = None
    for turn in range(TURNS - 1):
        answer = await client.post(PATH, _body(family, f"{turn}: {prose(ASKED)}", after, temperature=0))
        after = json.loads(answer)["id"]
    return str(after)


async def turns_ms(service: Server, family: str, rounds: int) -> dict[str, tuple[float, float]]:
    """CPU of the first turn and of the last, by the pace."""
    found: dict[str, tuple[float, float]] = {}
    async with Client(service.port) as client:
        last = await conversation(client, family)
        for name, temperature in PACES.items():
            runs: list[list[float]] = []
            for _ in range(rounds + 1):
                taken: list[float] = []
                for after in (None, last):
                    asked = _body(family, prose(ASKED), after, temperature=temperature, stream=True)
                    before = service.cpu_seconds()
                    await client.stream(PATH, asked)
                    taken.append((service.cpu_seconds() - before) * 1e3)
                runs.append(taken)
            first, later = zip(*runs[1:], strict=True)
            found[name] = median(first), median(later)
    return found


def measured_turns(rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """CPU of the first turn and of the 50th in ms, by the family and by the pace."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for family in CONVERSATIONS:
        with ExitStack() as running:
            standin = running.enter_context(
                Server(
                    ["-m", "bench._templated", family],
                    settings={"PYTHONPATH": str(ROOT)},
                    port_variable="TEMPLATED_PORT",
                )
            )
            settings = {
                "HARMONIUM_ENGINE": "vllm",
                "HARMONIUM_ENGINE_URL": f"http://{HOST}:{standin.port}",
                "PYTHONPATH": str(ROOT),
            }
            service = running.enter_context(Server(["-m", "service", "serve"], settings=settings))
            found[family] = asyncio.run(turns_ms(service, family, rounds))
    return found


def shown_tokens(found: dict[int, dict[str, float]]) -> float:
    """Print a row for each family; the ratio of the median one, at one token at a time."""
    print("| Family | Markup | µs | times Harmony | µs, 8 at a time | times Harmony |")
    print("| --- | --- | --- | --- | --- | --- |")
    one, eight = (found[size] for size in CHUNKS)
    ratios = {name: one[name] / one[HARMONY] for name in one if name != HARMONY}
    for name in one:
        markup = FAMILIES[name].markup if name in FAMILIES else ""
        cells = f"{one[name]:.2f} | {one[name] / one[HARMONY]:.2f} | {eight[name]:.2f}"
        print(f"| {name} | {markup} | {cells} | {eight[name] / eight[HARMONY]:.2f} |")
    return median(ratios.values())


def shown_turns(found: dict[str, dict[str, tuple[float, float]]]) -> tuple[float, float]:
    """Print a row for each family and pace; the worst ratio at a token each ms, and the most that is added."""
    print("| Family | Tokens come | First turn, ms of CPU | 50th turn | Times the first | Added, ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for family, paces in found.items():
        for pace, (first, last) in paces.items():
            print(f"| {family} | {pace} | {first:.1f} | {last:.1f} | {last / first:.2f} | {last - first:.1f} |")
    paced, at_once = PACES
    ratio = max(paces[paced][1] / paces[paced][0] for paces in found.values())
    return ratio, max(paces[at_once][1] - paces[at_once][0] for paces in found.values())


def main() -> int:
    """0, or 1 when --check is given and a limit passed."""
    parser = argparse.ArgumentParser(description="the serving process's CPU for models that know no Harmony")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is passed")
    parser.add_argument("--rounds", type=int, default=TURN_ROUNDS, help=f"how often each is measured ({TURN_ROUNDS})")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    token, turn = measured_tokens(options.rounds), measured_turns(options.rounds)
    if options.json:
        print(json.dumps({"token_us": token, "turn_ms": turn}))
        return 0
    middle = shown_tokens(token)
    print()
    ratio, added = shown_turns(turn)
    print(
        f"\ndialects: a token of the median family {middle:.2f} times Harmony's (target <= {TARGET_TOKEN:g}),"
        f" turn {TURNS} {ratio:.2f} times the first (target <= {TARGET_TURN:g}), at most {added:.1f} ms beyond it"
        f" (target <= {MOST_ADDED_MS:g})"
    )
    met = middle <= TARGET_TOKEN and ratio <= TARGET_TURN and added <= MOST_ADDED_MS
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
