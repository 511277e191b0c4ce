"""The whole service before an SGLang server, which is a stand-in."""

from typing import ClassVar

from service.engine.servers.experimental import GENERATE
from service.settings.settings import Settings
from tests.support.engine.standing import Standing
from tests.support.engine.talk import ServiceTalk, cached_by_tenants
from tests.support.sglang.standin import SglangStandin


class TestService(ServiceTalk):
    standin = SglangStandin
    engine: ClassVar[str] = "sglang"
    path = GENERATE

    async def test_tenants_never_share_cached_prefixes(self, settings: Settings, server: Standing) -> None:
        first, again, other = await cached_by_tenants(self.settings(settings, server))
        assert (first, other) == (0, 0)
        assert again > 0
