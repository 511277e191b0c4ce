"""The whole service before a TensorRT-LLM server, which is a stand-in."""

from typing import Any, ClassVar

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.engine.servers.engine import ServersEngine
from service.engine.servers.experimental import COMPLETIONS
from service.settings.core import parse_api_keys
from service.settings.settings import Settings
from tests.support.engine.standing import Standing
from tests.support.engine.talk import CARD, ServiceTalk, cached_by_tenants
from tests.support.service.inside import serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL
from tests.support.tensorrt.standin import TensorrtStandin


class TestService(ServiceTalk):
    standin = TensorrtStandin
    engine: ClassVar[str] = "tensorrt"
    path = COMPLETIONS
    update: ClassVar[dict[str, Any]] = {"context_tokens": CARD.context_tokens}

    def adapter(self, server: Standing) -> ServersEngine:
        """As the suite has it; it knows no salt, so the server has to keep nothing."""
        server.reuses = False  # type: ignore[attr-defined]
        return super().adapter(server)

    async def test_tenants_share_no_cache(self, settings: Settings, server: TensorrtStandin) -> None:
        server.reuses = False
        assert await cached_by_tenants(self.settings(settings, server)) == [0, 0, 0]

    async def test_tenants_are_not_served_where_they_would_share_one(
        self, settings: Settings, server: Standing
    ) -> None:
        keys = parse_api_keys(f"acme:{ACME_KEY},globex:{GLOBEX_KEY}")
        async with serving(self.settings(settings, server, api_keys=keys)) as inside, inside.http() as http:
            asked = await http.post(
                "/v1/responses", headers={"authorization": f"Bearer {ACME_KEY}"}, json={"model": MODEL, "input": "hi"}
            )
        assert asked.status_code == 503
        assert "enable_block_reuse: false" in asked.json()["error"]["message"]

    async def test_what_it_lacks_is_told_with_what_to_leave_out(self, client: AsyncOpenAI) -> None:
        include: Any = ["message.output_text.logprobs"]
        with pytest.raises(BadRequestError, match="names tokens by their text"):
            await client.responses.create(model=MODEL, input="hi", include=include, top_logprobs=2)
        with pytest.raises(BadRequestError, match="leave out cache_salt"):
            await client.responses.create(model=MODEL, input="hi", extra_body={"cache_salt": "own"})
