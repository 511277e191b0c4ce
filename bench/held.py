"""What it costs to hold a call to its schema, or to have one forced, before a real vLLM.

    scripts/bench held [--check] [--json] [--url URL]

One vLLM serves a conversation of one turn in which the talker calls a function, the same one with the same arguments
in each way: `free` asks for nothing, `held` for strict arguments, which takes a generation of its own behind the call's
header, `forced` for `tool_choice: required`, `both` for both, and `several` allows parallel calls, so that the model
goes on behind its call. The ways take turns, so that whatever else the machine does hits all of them.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import Client  # noqa: E402
from bench._vllm import RESPONSES, TALKER, Vllm, harmonium, served, wait_until_ready  # noqa: E402
from bench.vllm import local_port, say  # noqa: E402

WARM_ROUNDS = 3
TARGET_RATIO = 1.5
"""The most that held arguments may take of what free ones do. vLLM compiles the schema each time, as its own cache of
compiled grammars is off on a CPU.
"""

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def body(model: str, **more: Any) -> bytes:
    """The request, greedy; `strict` is the function's."""
    strict = more.pop("strict", False)
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": strict}
    same = {"model": model, "input": "What is the weather in Paris?", "temperature": 0, "tools": [tool], "store": False}
    return json.dumps({**same, "parallel_tool_calls": False, **more}).encode()


def ways(model: str) -> dict[str, bytes]:
    """Each way's request."""
    return {
        "free": body(model),
        "held": body(model, strict=True),
        "forced": body(model, tool_choice="required"),
        "both": body(model, strict=True, tool_choice="required"),
        "several": body(model, parallel_tool_calls=True),
    }


async def measure(port: int, requests: Mapping[str, bytes], rounds: int) -> dict[str, list[float]]:
    """Seconds of each request, one at a time. Raises RuntimeError where an answer is no call."""
    found: dict[str, list[float]] = {name: [] for name in requests}
    async with Client(port) as client:
        for number in range(WARM_ROUNDS + rounds):
            for name, request in requests.items():
                began = time.perf_counter()
                response = json.loads(await client.post(RESPONSES, request))
                took = time.perf_counter() - began
                if json.loads(response["output"][-1].get("arguments", "null")) != {"city": "Paris"}:
                    raise RuntimeError(f"{name}: {response['output']}")
                if number >= WARM_ROUNDS:
                    found[name].append(took)
    return found


def main() -> int:
    """0, or 1 when --check is given and the target missed."""
    parser = argparse.ArgumentParser(description="free, held and forced calls before a real vLLM")
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    parser.add_argument("--rounds", type=int, default=40, help="how often each way is asked (40)")
    parser.add_argument("--url", type=local_port, help="a vLLM that runs here, with scale-out")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    with ExitStack() as running:
        port = options.url or running.enter_context(Vllm(TALKER)).port
        service = running.enter_context(harmonium(port, profile=False))
        wait_until_ready(service.port)
        say(f"asking {options.rounds} times in each way")
        found = asyncio.run(measure(service.port, ways(served(port)), options.rounds))
    milliseconds = {name: median(each) * 1000 for name, each in found.items()}
    ratios = {name: each / milliseconds["free"] for name, each in milliseconds.items()}
    if options.json:
        print(json.dumps({"ms": milliseconds, "ratio": ratios}, indent=2))
    else:
        print("     way     p50 ms    ratio")
        for name, each in milliseconds.items():
            print(f"{name:>8} {each:10.1f} {ratios[name]:7.2f}x")
        print(f"held: {ratios['held']:.2f}x of a free call (target <= {TARGET_RATIO}x)")
    return 0 if ratios["held"] <= TARGET_RATIO or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
