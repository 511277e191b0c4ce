"""`harmonium` as tests of the core start it: with the tests' own engine and server in place of the demo engine and the
embedded server, whether these two features are there or not.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from service import process
from service.engine.port import MODEL_CREATED, Engine, ModelCard
from service.process import EngineKinds, Feature
from service.settings.core import CoreSettings
from service.settings.engines import DEMO
from store.embedded import EmbeddedServer
from tests.support.engine.talking import TalkingEngine

CONTEXT_TOKENS = 131_072
REPLACED = ("DemoFeature", "EmbeddedFeature")


class StandIns(Feature):
    """An engine under the demo engine's name, and a server of the data folder."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.own[DEMO] = talking

    @contextmanager
    def own_redis(self, settings: CoreSettings, *, serves: bool, makes: bool) -> Generator[str]:
        with EmbeddedServer(settings.data_dir) as server:
            yield server.url


def talking(settings: CoreSettings, model: str, context_tokens: int) -> Engine:
    card = ModelCard(model or DEMO, MODEL_CREATED, context_tokens or CONTEXT_TOKENS, real=False)
    return TalkingEngine(card, settings.demo_tokens_per_second)


loaded = process.features


@cache
def features() -> tuple[Feature, ...]:
    """The features that are there, these two replaced. Loading them imports modules that ask for this."""
    return (*(each for each in loaded() if type(each).__name__ not in REPLACED), StandIns())


def stand_in() -> None:
    """Replace them in this process."""
    process.features = features


def main() -> None:
    """The command."""
    from service.__main__ import main

    main()


if __name__ in ("__main__", "__mp_main__"):  # the second is a process that serves beside others
    stand_in()

if __name__ == "__main__":
    main()
