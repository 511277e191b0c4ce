"""The embedded server in a process: a Redis of its own."""

from contextlib import AbstractContextManager

from service.features.embedded.running import any_server, own_server
from service.process import Feature
from service.settings.core import CoreSettings


class EmbeddedFeature(Feature):
    """The embedded server."""

    def own_redis(self, settings: CoreSettings, *, serves: bool, makes: bool) -> AbstractContextManager[str] | None:
        return own_server(settings.data_dir) if serves else any_server(settings.data_dir, makes=makes)


FEATURE = EmbeddedFeature()
