"""VllmLocalEngine: the engine's port over vLLM in this process, whose engine core and workers are its children.

It is for one machine and one harmonium. A vLLM server can be restarted on its own; this one can't, and once its core
has died, harmonium has to be restarted. vLLM takes any number of generations and queues those without room:
MAX_CONCURRENT_REQUESTS bounds them. Never load two at the same time in one process.
"""

import asyncio
import itertools
import logging
import multiprocessing
import time
from collections.abc import Mapping
from contextlib import aclosing
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from service.engine.port import (
    MODEL_CREATED,
    Between,
    Chunk,
    Defaults,
    EngineBroke,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Generation,
    ModelCard,
    Sampling,
    Take,
)
from service.engine.servers.answer import FINISHES
from service.features.vllm_local.guard import EngineGuard
from service.features.vllm_local.library import CORE, VllmLibrary, brief, load, read_logprobs
from service.logs import event

logger = logging.getLogger(__name__)

STOP_SECONDS = 15.0
"""How long vLLM's core may take to end, before it is killed; it takes 5 on two slow processors."""

KILL_SECONDS = 5.0
"""How long a core that was killed may take to be gone."""

POLL_SECONDS = 0.1
"""The seconds between two looks for vLLM's core while vLLM loads."""

WARM_UP = Generation("warm-up", (0,), Sampling(1, 0))
"""The first generation: it shows that tokens come, and starts the parts that vLLM starts with the first."""


class VllmLocalEngine:
    """vLLM in this process. `model` is a name or a folder, `args` are vLLM's AsyncEngineArgs by name.

    Its id is `served_as`, else vLLM's name: `model`, unless `args` say otherwise. `context_tokens` 0 is the
    longest that vLLM has found room for, and it is never more than that.
    """

    def __init__(self, model: str, args: Mapping[str, Any], *, served_as: str = "", context_tokens: int = 0) -> None:
        self._source = model
        self._args = dict(args)
        self._served_as = served_as
        self._context_tokens = context_tokens
        self._vllm: VllmLibrary | None = None
        self._llm: Any = None
        """vLLM's AsyncLLM, while it runs."""
        self._guard: EngineGuard | None = None
        self._others: frozenset[BaseProcess] = frozenset()
        self._card: ModelCard | None = None
        self._tracing = False
        self._death_logged = False
        self._numbers = itertools.count()
        self._under_way: set[str] = set()

    @property
    def model(self) -> ModelCard:
        """The card of the model that is served. Raises EngineUnavailable before the first start."""
        if self._card is None:
            raise EngineUnavailable("vLLM was not started yet")
        return self._card

    async def start(self) -> None:
        """Load the model and sample a token, which takes half a minute at the least; also after `close`.

        vLLM is built in a thread: the loop goes on, but for a second here and there. Cancelling gives the load up.
        Raises EngineUnavailable with the reason why vLLM doesn't start.
        """
        await self.close()
        began = time.monotonic()
        event(logger, logging.INFO, "loading the model into vLLM in this process", model=self._source)
        try:
            await self._load()
        except BaseException as error:
            await self.close()
            if isinstance(error, EngineUnavailable) or not isinstance(error, Exception):
                raise
            raise EngineUnavailable(f"vLLM does not start: {brief(error)}") from error
        event(
            logger,
            logging.INFO,
            "the model is loaded",
            model=self.model.id,
            context_tokens=self.model.context_tokens,
            load_seconds=time.monotonic() - began,
        )

    async def check(self) -> None:
        """Return if the engine can serve. Raises EngineUnavailable if it is closed, or if its core has died."""
        self._ready()

    def servers(self) -> Mapping[str, bool]:
        """The one in this process."""
        return {"vllm-local": self._llm is not None and not self._llm.errored}

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        """Sample; see the port. All tokens sampled since the last chunk come as one chunk. Raises EngineError."""
        vllm, llm = self._ready()
        id = f"{generation.id}-{next(self._numbers)}"
        self._under_way.add(id)
        try:
            outputs = llm.generate(
                vllm.prompt(generation.prompt, generation.cache_salt),
                vllm.parameters(generation.sampling),
                id,
                # vLLM warns of headers that it has no use for
                trace_headers=dict(generation.trace) if self._tracing else None,
                priority=generation.priority,
                reasoning_ended=True,  # a constraint holds from the first token, whatever parser vLLM has
            )
            async with aclosing(outputs):
                async for output in outputs:
                    chunk = self._chunk(output, generation.sampling.logprobs)
                    if not take(chunk) and not await between():
                        return
        except EngineError:
            raise
        except Exception as error:
            raise self._failure(vllm, error) from error
        finally:
            self._under_way.discard(id)

    async def finish(self, id: str) -> bool:
        """The first chunk has the count of cached tokens, so nothing more can be learned."""
        return False

    async def close(self) -> None:
        """Abort what is running and end vLLM's processes, which takes some seconds."""
        llm, self._llm = self._llm, None
        guard, self._guard = self._guard, None
        if llm is not None:
            try:
                await llm.abort(list(self._under_way))
            finally:
                if llm.output_handler is not None:
                    llm.output_handler.cancel()  # it would log the end of the core as a failure
                await asyncio.to_thread(self._stop, llm)
        if guard is not None:
            guard.dismiss()

    async def _load(self) -> None:
        """Build vLLM, read its model's facts, and see whether it samples."""
        self._others = frozenset(multiprocessing.active_children())
        self._guard = EngineGuard()
        building = asyncio.get_running_loop().run_in_executor(None, self._build)
        try:
            while not building.done():
                self._guard.watch(core.pid for core in self._cores() if core.pid)
                await asyncio.wait([building], timeout=POLL_SECONDS)
            building.result()
        except asyncio.CancelledError:
            await self._give_up(building)
            raise
        _, llm = self._ready()
        self._death_logged = False
        self._tracing = await llm.is_tracing_enabled()
        config = llm.vllm_config.model_config
        self._card = ModelCard(
            self._served_as or config.served_model_name,
            MODEL_CREATED,
            min(config.max_model_len, self._context_tokens or config.max_model_len),
            msgspec.convert(config.get_diff_sampling_param(), Defaults),
        )
        await self.sample(WARM_UP, lambda _: True, _go_on)

    def _build(self) -> None:
        """Imports vLLM and starts it. Returns nothing: an object that a thread has returned may live on in it."""
        self._vllm = load()
        self._llm = self._vllm.build(self._source, self._args)

    def _stop(self, llm: Any) -> None:
        """End vLLM's processes. Blocks."""
        llm.shutdown(STOP_SECONDS)
        for core in self._cores():
            core.join(KILL_SECONDS)

    def _cores(self) -> list[BaseProcess]:
        """The children that vLLM has made; it ends theirs."""
        children = multiprocessing.active_children()
        return [each for each in children if each.name.startswith(CORE) and each not in self._others]

    async def _give_up(self, building: asyncio.Future[None]) -> None:
        """End a load: kill the core as soon as there is one, and so end the thread that waits for it."""
        while not building.done():
            for core in self._cores():
                if self._vllm is not None and core.pid is not None:
                    self._vllm.kill_tree(core.pid)
            await asyncio.wait([building], timeout=POLL_SECONDS)
        if error := building.exception():
            event(logger, logging.INFO, "loading was cancelled", reason=brief(error))

    def _ready(self) -> tuple[VllmLibrary, Any]:
        """The running library and its engine. Raises EngineUnavailable if none runs."""
        if self._vllm is None or self._llm is None:
            raise EngineUnavailable("vLLM is not running")
        if self._llm.errored:
            raise self._death()
        return self._vllm, self._llm

    def _death(self) -> EngineUnavailable:
        """The error for a dead core. It is logged once."""
        if not self._death_logged:
            self._death_logged = True
            event(logger, logging.ERROR, "vLLM's engine core died", remedy="restart harmonium")
        return EngineBroke("vLLM's engine core died; harmonium has to be restarted")

    def _chunk(self, output: Any, logprobs: int | None) -> Chunk:
        """The sampled chunk. Raises EngineError where vLLM ended the generation for reasons of its own."""
        (completion,) = output.outputs
        reason = completion.finish_reason
        if reason == "abort" and self._llm is not None:
            raise EngineUnavailable("vLLM aborted the generation")
        if reason is not None and reason not in FINISHES:
            raise EngineError(f"vLLM ended the generation with {reason!r}")
        return Chunk(
            list(completion.token_ids),
            None if reason is None else FINISHES[reason],
            output.num_cached_tokens,
            None if logprobs is None else read_logprobs(completion, logprobs),
        )

    def _failure(self, vllm: VllmLibrary, error: Exception) -> EngineError:
        """Our error for an exception of vLLM."""
        if self._llm is None:
            return EngineUnavailable("vLLM was stopped")
        if self._llm.errored:
            return self._death()
        if isinstance(error, vllm.wrapper) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        if isinstance(error, vllm.overload):
            return EngineOverloaded(f"vLLM is full: {brief(error)}")
        if isinstance(error, vllm.refusals):
            return EngineRefused(brief(error))
        return EngineError(f"vLLM failed: {brief(error)}")


async def _go_on() -> bool:
    return True
