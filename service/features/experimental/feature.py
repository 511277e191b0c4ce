"""Experimental servers in a process: the kinds of SGLang and TensorRT-LLM."""

from service.engine.engines import salt_of
from service.engine.servers.kind import ServerKind
from service.features.experimental.servers import Sglang, Tensorrt
from service.process import EngineKinds, Feature
from service.settings.core import CoreSettings


class ExperimentalFeature(Feature):
    """SGLang and TensorRT-LLM."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.servers["sglang"] = lambda _: Sglang()
        kinds.servers["tensorrt"] = tensorrt_of


def tensorrt_of(settings: CoreSettings) -> ServerKind:
    """TensorRT-LLM's servers: where there is one tenant, one salt is enough for all that they cache."""
    shared, tenant = settings.several_tenants, next(iter(settings.tenants))
    return Tensorrt(shared=shared, salt=None if shared else salt_of(settings.key_prefix, tenant, ""))


FEATURE = ExperimentalFeature()
