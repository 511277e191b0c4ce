"""What the embedded server gives to a process: a Redis of its own."""

from contextlib import AbstractContextManager

from service.features.embedded.running import embedded, reached
from service.process import Feature
from service.settings.core import CoreSettings


class EmbeddedFeature(Feature):
    """The embedded server."""

    def own_redis(self, settings: CoreSettings, *, serves: bool) -> AbstractContextManager[str] | None:
        return embedded(settings.data_dir) if serves else reached(settings.data_dir)


FEATURE = EmbeddedFeature()
