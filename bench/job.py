"""The minutes of a job: an agent's session of many turns with a tool, on three ways to one real vLLM.

    scripts/bench job [--check] [--turns N] [--words N] [--pause S] [--rounds N]

The same vLLM on the CPU, with prefix caching and room for less than all jobs, is asked through harmonium, through its
own Responses API with its store on, both continued by `previous_response_id`, and through Chat Completions with all of
the conversation sent again. In each turn the model is asked for the weather or gets what its tool returned, some
hundred words; before each tool's result an agent's client waits a little, as tools do. First one job is measured, then
three at once whose instructions are the same. The ways take turns within a round; a figure is the median of the rounds.
Each job's first words are its own, so no way finds in the cache what another one left there.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple, Protocol

from bench._harness import Client
from bench._vllm import TALKER, Vllm, harmonium, served, wait_until_ready

SERVING = [
    *("--max-model-len", "16384", "--max-num-batched-tokens", "16384", "--num-gpu-blocks-override", "288"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss"),
]
"""How vLLM serves: a cache of 18,360 tokens, which is less than three jobs have."""

HARMONIUM, OWN, AGAIN = "harmonium", "vLLM's own store", "Chat Completions"
CITIES = ("Paris", "Rome", "Berlin")
"""One for each of the jobs that run at once."""

INSTRUCTION_WORDS = 1_500
MOST_TOKENS = 64
"""The most that the model says in a turn."""

MOST_TIME = 1.0
"""The most that a job may take through harmonium, of its time on another way."""

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS}
WORDS = [
    "the",
    "log",
    "of",
    "a",
    "build",
    "has",
    "many",
    "lines",
    "and",
    "each",
    "says",
    "what",
    "was",
    "made",
    "where",
]


class Spent(NamedTuple):
    """The cost of turns: bytes that were sent, and tokens of prompts, of these cached, and sampled."""

    sent: int = 0
    prompt: int = 0
    cached: int = 0
    sampled: int = 0

    @property
    def computed(self) -> int:
        """The tokens that the engine had to compute."""
        return self.prompt - self.cached + self.sampled

    def plus(self, other: "Spent") -> "Spent":
        """Both together."""
        return Spent(*(mine + its for mine, its in zip(self, other, strict=True)))


class Agent(Protocol):
    """The client of one job on a way."""

    path: str

    def body(self) -> Mapping[str, Any]:
        """The request of the next turn."""
        ...

    def take(self, answer: Mapping[str, Any], result: str) -> tuple[Spent, bool]:
        """Go on behind an answer, with the result of the tool where the model called it; its tokens, and whether."""
        ...


class Chained:
    """It continues by the id of the response before."""

    path = "/v1/responses"

    def __init__(self, model: str, instructions: str, city: str) -> None:
        self._same = {"model": model, "instructions": instructions, "tools": [{"type": "function", **FUNCTION}]}
        self._next: Any = question(city)
        self._city, self._before = city, dict[str, str]()

    def body(self) -> Mapping[str, Any]:
        return self._same | self._before | {"input": self._next, "temperature": 0, "max_output_tokens": MOST_TOKENS}

    def take(self, answer: Mapping[str, Any], result: str) -> tuple[Spent, bool]:
        self._before = {"previous_response_id": answer["id"]}
        calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": call, "output": result} for call in calls]
        self._next = outputs or question(self._city)
        usage = answer["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        return Spent(0, usage["input_tokens"], cached, usage["output_tokens"]), bool(calls)


class Repeated:
    """It sends the whole conversation in each turn, with the server's messages as they came."""

    path = "/v1/chat/completions"

    def __init__(self, model: str, instructions: str, city: str) -> None:
        self._same = {"model": model, "tools": [{"type": "function", "function": FUNCTION}]}
        self._city, self._messages = city, list[Mapping[str, Any]]()
        self._messages += [{"role": "developer", "content": instructions}, {"role": "user", "content": question(city)}]

    def body(self) -> Mapping[str, Any]:
        return self._same | {"messages": self._messages, "temperature": 0, "max_tokens": MOST_TOKENS}

    def take(self, answer: Mapping[str, Any], result: str) -> tuple[Spent, bool]:
        message = answer["choices"][0]["message"]
        self._messages.append({name: value for name, value in message.items() if value})
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        self._messages += [{"role": "tool", "tool_call_id": call, "content": result} for call in calls]
        if not calls:
            self._messages.append({"role": "user", "content": question(self._city)})
        usage = answer["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Spent(0, usage["prompt_tokens"], cached, usage["completion_tokens"]), bool(calls)


class Way(NamedTuple):
    """A way to the model: its name, its port, and the agents that use it."""

    name: str
    port: int
    agent: type[Chained] | type[Repeated]


class Shape(NamedTuple):
    """A job's shape: turns, the words of a tool's result, and the seconds that a tool takes."""

    turns: int
    words: int
    pause: float


class Run(NamedTuple):
    """Jobs on a way: their seconds until the last one ended, their calls, and their cost together."""

    seconds: float
    calls: int
    spent: Spent


def question(city: str) -> str:
    """The message of a user."""
    return f"What is the weather in {city}?"


def words(number: int, seed: str) -> str:
    """As many words, the same ones for a seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=number))


async def job(agent: Agent, port: int, shape: Shape, seed: str) -> tuple[int, Spent]:
    """Run one job to its end; its calls and its cost."""
    calls, all_spent = 0, Spent()
    async with Client(port) as client:
        for turn in range(shape.turns):
            body = json.dumps(agent.body()).encode()
            answer = json.loads(await client.post(agent.path, body))
            spent, called = agent.take(answer, f"It is 21 degrees. {words(shape.words, f'{seed}-{turn}')}")
            all_spent = all_spent.plus(spent._replace(sent=len(body)))
            calls += called
            if called:
                await asyncio.sleep(shape.pause)  # the tool's own time
    return calls, all_spent


async def run(way: Way, model: str, jobs: int, shape: Shape, turn: int) -> Run:
    """Run jobs at once on a way, with the same instructions."""
    begun = time.monotonic()
    instructions = f"Round {turn} of {jobs} by {way.name}. {words(INSTRUCTION_WORDS, 'instructions')}"
    agents = [way.agent(model, instructions, city) for city in CITIES[:jobs]]
    done = await asyncio.gather(*(job(each, way.port, shape, f"{n}") for n, each in enumerate(agents)))
    spent = Spent()
    for _, each in done:
        spent = spent.plus(each)
    return Run(time.monotonic() - begun, sum(calls for calls, _ in done), spent)


def tell(jobs: int, shape: Shape, found: Mapping[str, Sequence[Run]]) -> None:
    """Print a table of the ways."""
    print(f"\n{jobs} of {shape.turns} turns {'each, at once' if jobs > 1 else ''}")
    print("| Way | Seconds | Cached share | Tokens computed | Sampled | Sent, in kB | Calls |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, runs in found.items():
        seconds, last = median(each.seconds for each in runs), runs[-1]
        spent = last.spent
        share, sent = 100 * spent.cached / spent.prompt, spent.sent / 1000
        row = f"{seconds:.1f} | {share:.0f} % | {spent.computed:,} | {spent.sampled:,} | {sent:,.0f} | {last.calls}"
        print(f"| {name} | {row} |")


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the minutes of a job")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--turns", type=int, default=43, help="the turns of a job")
    parser.add_argument("--words", type=int, default=150, help="the words of a tool's result")
    parser.add_argument("--pause", type=float, default=0.2, help="the seconds that a tool takes")
    parser.add_argument("--rounds", type=int, default=3, help="the rounds, of which the median counts")
    options = parser.parse_args()
    shape, met = Shape(options.turns, options.words, options.pause), True
    with ExitStack() as stack:
        vllm = stack.enter_context(Vllm(TALKER, SERVING))
        service = stack.enter_context(harmonium(vllm.port, profile=False))
        wait_until_ready(service.port)
        model = served(vllm.port)
        ways = [Way(HARMONIUM, service.port, Chained), Way(OWN, vllm.port, Chained), Way(AGAIN, vllm.port, Repeated)]
        for jobs in (1, len(CITIES)):
            found = {way.name: list[Run]() for way in ways}
            for turn in range(options.rounds):
                for way in ways:
                    found[way.name].append(asyncio.run(run(way, model, jobs, shape, turn)))
            tell(jobs, shape, found)
            times = {name: median(each.seconds for each in runs) for name, runs in found.items()}
            for other in (OWN, AGAIN):
                ratio = times[HARMONIUM] / times[other]
                print(f"job: {jobs} at once, time of {other}: {ratio:.2f} (target <= {MOST_TIME:g})")
                met = met and ratio <= MOST_TIME
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
