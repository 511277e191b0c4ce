"""Who gets how much of a process that has less room than is asked for: by weights, whatever tenants ask for.

A real `harmonium serve` with few slots and a demo engine that is slow enough for its loop to have time. Acme asks for
small responses and Globex for large ones, each on more connections than there are slots, so that both always have some
that wait. A row says how many virtual tokens a second each of them got (those of prompts, and twice those of outputs),
which share of them all was Globex' and which should have been, and how far the one that is further off is from its own.
"""

import asyncio
import json
import time
from collections import Counter
from typing import Any, NamedTuple

from bench._asking import ACME, GLOBEX, Connection, posted
from bench._harness import Server

SLOTS = 16
CLIENTS = 24
"""The connections of each tenant."""

TOKENS_A_SECOND = 40
"""What the engine makes of one response."""

WARM_SECONDS = 5.0
SECONDS = 15.0
"""How long tokens are counted, once it goes on for a while."""

OUTPUT = 2
"""The virtual tokens of one of an output."""

TARGET = 0.10
"""How far a tenant's share may be from its own."""

RETRY_SECONDS = 0.02
"""After how long somebody who was refused asks again, where nobody may wait."""


class Size(NamedTuple):
    """What a tenant asks for: words of input, and tokens of output."""

    words: int
    output: int


class Asked(NamedTuple):
    """A row: the weights, and what Acme and Globex ask for."""

    weights: tuple[int, int]
    acme: Size
    globex: Size
    queued: bool = True


SMALL, LARGE = Size(1, 16), Size(400, 64)
ROWS = {
    "as large": Asked((1, 1), SMALL, SMALL),
    "larger": Asked((1, 1), SMALL, LARGE),
    "larger, three times as much": Asked((1, 3), SMALL, LARGE),
    "larger, a third": Asked((3, 1), SMALL, LARGE),
    "larger, nobody waits": Asked((1, 1), SMALL, LARGE, queued=False),
}
"""What Globex asks for, and its weight. The last is not judged: it is what there was without a queue."""


async def row(name: str) -> bool:
    """Print a row; whether both tenants got what is theirs."""
    asked = ROWS[name]
    settings = {
        "HARMONIUM_API_KEYS": f"acme:{ACME},globex:{GLOBEX}",
        "HARMONIUM_LOG_LEVEL": "warning",
        "HARMONIUM_MAX_CONCURRENT_REQUESTS": str(SLOTS),
        "HARMONIUM_DEMO_TOKENS_PER_SECOND": str(TOKENS_A_SECOND),
        "HARMONIUM_ADMISSION_WAIT_SECONDS": "60" if asked.queued else "0",
        "HARMONIUM_TENANT_WEIGHTS": f"acme={asked.weights[0]},globex={asked.weights[1]}",
    }
    took, failed = Counter[str](), Counter[str]()
    counts = False

    async def one(port: int, key: str, size: Size) -> None:
        connection = Connection(port)
        words = "word " * size.words
        sent = posted(key, input=f"{words}Count to 900.", max_output_tokens=size.output, store=False)
        while True:
            try:
                status, answer = await connection.ask(sent)
            except ConnectionError:
                status, answer = 0, b""
            if status != 200:
                failed[key] += counts and (asked.queued or status != 503)
                await asyncio.sleep(RETRY_SECONDS)
            elif counts:
                usage: dict[str, Any] = json.loads(answer)["usage"]
                took[key] += usage["input_tokens"] + OUTPUT * usage["output_tokens"]

    with Server(["-m", "service", "serve"], settings=settings) as server:
        each = ((ACME, asked.acme), (GLOBEX, asked.globex))
        clients = [asyncio.create_task(one(server.port, *of)) for of in each for _ in range(CLIENTS)]
        await asyncio.sleep(WARM_SECONDS)
        counts, began = True, time.monotonic()
        await asyncio.sleep(SECONDS)
        counts, seconds = False, time.monotonic() - began
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    wanted = asked.weights[1] / sum(asked.weights)
    got = took[GLOBEX] / (took.total() or 1)
    off = max(abs(got / wanted - 1), abs((1 - got) / (1 - wanted) - 1))
    fine = not asked.queued or (off <= TARGET and not failed.total())
    print(
        f"{name:28}{asked.weights[0]:>5}:{asked.weights[1]}{took[ACME] / seconds:10.0f}{took[GLOBEX] / seconds:10.0f}"
        f"{100 * wanted:9.1f}%{100 * got:9.1f}%{100 * off:9.1f}%{failed.total():10}{'' if fine else '  missed'}",
        flush=True,
    )
    return fine


async def rows() -> bool:
    """All rows; whether everybody got what is theirs."""
    heads = ("Acme/s", "Globex/s", "wanted", "got", "off", "failed")
    print(f"{'Globex asks for':28}{'weights':>7}{heads[0]:>10}" + "".join(f"{head:>10}" for head in heads[1:]))
    return all([await row(name) for name in ROWS])
