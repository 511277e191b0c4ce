"""The cost of a batch: lines a second, CPU of a line, and the memory of the service and its Redis beside it.

    scripts/bench batch [--check] [--lines N]

`harmonium serve` with its embedded server and the demo engine, whose tokens cost no time, and a batch of N lines over
the Responses API: from its creation to the file of its answers, which is fetched and counted.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from openai import OpenAI

from bench._harness import cpu_seconds, family, held_bytes
from bench.start import environment, serving

RATE_TARGET = 50.0
"""Lines a second, on one core."""

MEMORY_TARGET = 300
"""The most MB that the service and its Redis have more at the end than before."""

MOST_SECONDS = 1_800.0
POLL_SECONDS = 0.5


def lines_of(number: int) -> bytes:
    return b"\n".join(
        json.dumps(
            {
                "custom_id": f"line-{each}",
                "method": "POST",
                "url": "/v1/responses",
                "body": {"model": "demo", "instructions": "Be brief.", "input": f"Count to {each % 5 + 1}."},
            }
        ).encode()
        for each in range(number)
    )


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the cost of a batch")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--lines", type=int, default=10_000, help="how many lines it has")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        env = environment(folder, HARMONIUM_DEMO_TOKENS_PER_SECOND="0", HARMONIUM_DATA_DIR=str(folder / "data"))
        command = [str(Path(sys.executable).with_name("harmonium")), "serve"]
        with (
            serving(command, env, folder) as (port, pid),
            OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client,
        ):
            before = sum(map(held_bytes, family(pid)))
            spent = sum(map(cpu_seconds, family(pid)))
            file = client.files.create(file=("lines.jsonl", lines_of(options.lines)), purpose="batch")
            begun, most = time.monotonic(), before
            batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
            while batch.status not in ("completed", "failed", "expired", "cancelled"):
                if time.monotonic() - begun > MOST_SECONDS:
                    raise TimeoutError(f"the batch is {batch.status} after {MOST_SECONDS:g} s")
                time.sleep(POLL_SECONDS)
                batch = client.batches.retrieve(batch.id)
                most = max(most, sum(map(held_bytes, family(pid))))
            seconds = time.monotonic() - begun
            spent = sum(map(cpu_seconds, family(pid))) - spent
            made = client.files.content(batch.output_file_id or "").text.count("\n")
    rate, more = options.lines / seconds, (most - before) / 1e6
    print(f"{made} of {options.lines} lines answered, the batch is {batch.status}, in {seconds:.0f} s")
    print(f"batch: {rate:.0f} lines a second (target {RATE_TARGET:.0f})")
    print(f"batch: {1e3 * spent / options.lines:.1f} ms of CPU a line, of service, workers and Redis")
    print(f"batch: {more:.0f} MB more at most (target {MEMORY_TARGET})")
    met = made == options.lines and rate >= RATE_TARGET and more <= MEMORY_TARGET
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
