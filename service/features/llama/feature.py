"""llama.cpp in a process: its servers, and one of our own."""

from pathlib import Path
from typing import Any

from service.engine.port import Engine
from service.features.llama.local import LlamaLocalEngine
from service.features.llama.servers import Llama
from service.process import EngineKinds, Feature
from service.settings.core import CoreSettings


class LlamaFeature(Feature):
    """llama.cpp."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.servers["llama"] = lambda settings: Llama(shared=settings.several_tenants)

        def open_local(settings: CoreSettings, model: str, context_tokens: int) -> Engine:
            """A server of our own, with all that the engine of servers has."""
            served: Any = type("ServedLlama", (LlamaLocalEngine, kinds.server_engine), {})
            path, args, shared = Path(settings.loaded_model), settings.local_args, settings.several_tenants
            return served(path, args, served_as=model, context_tokens=context_tokens, shared=shared)

        kinds.own["llama-local"] = open_local


FEATURE = LlamaFeature()
