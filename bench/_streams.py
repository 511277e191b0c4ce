"""What one process of the service holds in memory: at rest, and with a thousand streams before a server over HTTP.

The server is a stand-in for vLLM's, in the benchmark's own process as the clients are. Every stream gets a token a
second, as long as all are open. Nothing here may know what a start is.
"""

import asyncio
import json
import resource
from contextlib import AsyncExitStack
from typing import NamedTuple

from bench._harness import HOST, Client, Server
from bench._vllm import RESPONSES
from service.engine.port import MODEL_CREATED, ModelCard
from service.features.demo.engine import DemoEngine
from tests.support.engine.standin import standing_in

STREAMS = 1000
MODEL = ModelCard("gpt-oss-20b", MODEL_CREATED, 131_072)
OPEN_SECONDS = 10.0
"""How long all streams are open together."""

LOOK_SECONDS = 0.2
SETTLE_SECONDS = 1.0
OPEN_FILES = 8192
EVENT = b"event: response.output_text.delta"
READ_BYTES = 1 << 16
ASKED = {"model": MODEL.id, "input": "Count to 900.", "reasoning": {"effort": "low"}}
SETTINGS = {
    "HARMONIUM_ENGINE": "vllm",
    "HARMONIUM_MAX_CONCURRENT_REQUESTS": str(STREAMS),
    "HARMONIUM_STORE_CACHE_BYTES": str(8 << 20),
}
"""Room for all of them, and a small read cache, so that what is measured is not what it holds."""


class Held(NamedTuple):
    """MB of resident memory: at rest once it has answered, the most while the streams were open, and 10 s after."""

    at_rest: float
    streaming: float
    after: float


async def held(streams: int = STREAMS) -> Held:
    """Measure a service of its own. Raises RuntimeError where a stream is refused or breaks off."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, most), most))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(standing_in(DemoEngine(MODEL, tokens_per_second=1)))
        service = Server(["-m", "service", "serve"], settings=SETTINGS | {"HARMONIUM_ENGINE_URL": server.url})
        await asyncio.to_thread(service.__enter__)
        stack.push(service.__exit__)
        async with Client(service.port) as client:
            await client.post(RESPONSES, json.dumps(ASKED | {"max_output_tokens": 16}).encode())
        await asyncio.sleep(SETTLE_SECONDS)
        at_rest = service.held_bytes()
        begun, over = asyncio.Semaphore(0), asyncio.Event()
        reading = asyncio.gather(*(_stream(service.port, begun, over) for _ in range(streams)))
        all_begun = asyncio.gather(*(begun.acquire() for _ in range(streams)))
        await asyncio.wait([reading, all_begun], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            await reading
        streaming = 0
        for _ in range(int(OPEN_SECONDS / LOOK_SECONDS)):
            streaming = max(streaming, service.held_bytes())
            await asyncio.sleep(LOOK_SECONDS)
        over.set()
        await reading
        await asyncio.sleep(OPEN_SECONDS)
        return Held(*(each / (1 << 20) for each in (at_rest, streaming, service.held_bytes())))


async def _stream(port: int, begun: asyncio.Semaphore, over: asyncio.Event) -> None:
    """Ask for a streamed answer, tell that its text has begun, and hang up when it is over."""
    body = json.dumps(ASKED | {"stream": True}).encode()
    reader, writer = await asyncio.open_connection(HOST, port)
    head = f"POST {RESPONSES} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    told = b""
    while not over.is_set():
        piece = await reader.read(READ_BYTES)
        if not piece:
            raise RuntimeError(f"the stream broke off: {told[-1000:].decode(errors='replace')}")
        if EVENT not in told and EVENT in (told := told + piece):
            begun.release()
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    print(asyncio.run(held()))
