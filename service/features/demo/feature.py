"""The demo engine in a process: an engine of its kind."""

from service.engine.port import MODEL_CREATED, Engine, ModelCard
from service.features.demo.engine import DemoEngine
from service.process import EngineKinds, Feature
from service.settings.core import CoreSettings
from service.settings.engines import DEMO

DEMO_CONTEXT_TOKENS = 131_072
"""The length of the demo engine's context where nothing says another."""


class DemoFeature(Feature):
    """The demo engine."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.own[DEMO] = open_demo


def open_demo(settings: CoreSettings, model: str, context_tokens: int) -> Engine:
    """The engine."""
    card = ModelCard(model or DEMO, MODEL_CREATED, context_tokens or DEMO_CONTEXT_TOKENS, real=False)
    return DemoEngine(card, settings.demo_tokens_per_second)


FEATURE = DemoFeature()
