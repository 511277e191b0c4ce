"""Models that don't speak Harmony in a process: their readings, and how a server's model speaks."""

from service.features.models.speech import Disarming
from service.features.models.templated import TemplatedReadings
from service.process import EngineKinds, Feature, Parts


class ModelsFeature(Feature):
    """Models that don't speak Harmony."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.speeches = Disarming

    def compose(self, parts: Parts) -> None:
        parts.readings = TemplatedReadings()


FEATURE = ModelsFeature()
