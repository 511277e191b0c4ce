"""vLLM in this process: an engine of its kind."""

from service.engine.port import Engine
from service.process import EngineKinds, Feature
from service.settings.core import CoreSettings


class VllmLocalFeature(Feature):
    """vLLM in this process."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.own["vllm-local"] = open_local


def open_local(settings: CoreSettings, model: str, context_tokens: int) -> Engine:
    """The engine, not loaded yet."""
    from service.features.vllm_local.local import VllmLocalEngine

    args = settings.local_args
    return VllmLocalEngine(settings.loaded_model, args, served_as=model, context_tokens=context_tokens)


FEATURE = VllmLocalFeature()
