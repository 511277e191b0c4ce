"""What a client keeps sealed: reasoning that comes back as the very tokens that were sampled, for its tenant alone."""

from typing import Any

import pytest
from openai import BadRequestError

from service.process import Settings, load_settings
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.inside import Inside, answer, scripted, serving, then, thought
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL
from tests.support.service.seen import ask

ASKED, THOUGHT = "Tell me a joke.", "The user wants a joke."
SEALED: Any = ["reasoning.encrypted_content"]


def engine() -> ScriptedEngine:
    """A model that thinks before it answers."""
    return scripted([[*thought(THOUGHT), *then(answer("Knock, knock."))]])


def with_keys(settings: Settings, **others: object) -> Settings:
    """The same service for two tenants."""
    keys = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"
    return load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys=keys, **others)


async def reasoning(service: Inside, key: str = "none", **options: Any) -> dict[str, Any]:
    """The reasoning of a response that nobody stores."""
    async with service.client(key) as client:
        made = await client.responses.create(model=MODEL, input=ASKED, store=False, **options)
    return made.output[0].to_dict()


async def send_back(service: Inside, item: dict[str, Any], key: str = "none") -> None:
    """Go on from a reasoning that the client kept. Raises the SDK's errors."""
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "so"}
    sent: Any = [{"role": "user", "content": ASKED}, item, call, output]
    async with service.client(key) as client:
        await ask(client, input=sent, store=False)


async def refused(service: Inside, item: dict[str, Any], key: str = "none") -> str:
    """How a reasoning that is sent back is refused."""
    with pytest.raises(BadRequestError) as caught:
        await send_back(service, item, key)
    assert (caught.value.param, caught.value.code) == ("input[1].encrypted_content", "invalid_encrypted_content")
    return caught.value.message


async def test_reasoning_is_sealed_where_that_is_asked_for_and_nowhere_else(settings: Settings) -> None:
    async with serving(settings, engine()) as service:
        sealed = await reasoning(service, include=SEALED)
        plain = await reasoning(service)

    assert sealed["encrypted_content"].startswith("hs_")
    assert THOUGHT not in sealed["encrypted_content"]
    assert plain.get("encrypted_content") is None


async def test_what_another_tenant_has_or_somebody_made_up_is_one_and_the_same_refusal(settings: Settings) -> None:
    async with serving(with_keys(settings, unsupported="refuse"), engine()) as service:
        item = await reasoning(service, ACME_KEY, include=SEALED)
        text = item["encrypted_content"]
        forged = {**item, "encrypted_content": text[:-2] + ("AA" if not text.endswith("AA") else "BA")}

        await send_back(service, item, ACME_KEY)
        foreign = await refused(service, item, GLOBEX_KEY)
        assert foreign == await refused(service, forged, ACME_KEY)
        assert "not sealed by this service for you" in foreign
        assert "is not sealed content" in await refused(service, {**item, "encrypted_content": "gAAAAAB"}, ACME_KEY)


async def test_a_key_that_the_store_made_is_that_of_all_who_share_it(settings: Settings) -> None:
    async with serving(settings, engine()) as service:
        item = await reasoning(service, include=SEALED)
    async with serving(settings, engine()) as another:
        await send_back(another, item)
    named = {"redis_url": settings.redis_url, "redis_prefix": f"{settings.redis_prefix}-other"}
    elsewhere = load_settings(**named, unsupported="refuse")
    async with serving(elsewhere, engine()) as stranger:
        await refused(stranger, item)


async def test_keys_are_changed_without_anybody_noticing(settings: Settings) -> None:
    old_key, new_key = "o" * 32, "n" * 32
    async with serving(with_keys(settings, seal_keys=old_key), engine()) as service:
        old = await reasoning(service, ACME_KEY, include=SEALED)
    async with serving(with_keys(settings, seal_keys=f"{new_key},{old_key}"), engine()) as service:
        await send_back(service, old, ACME_KEY)
        new = await reasoning(service, ACME_KEY, include=SEALED)
    async with serving(with_keys(settings, seal_keys=new_key, unsupported="refuse"), engine()) as service:
        await send_back(service, new, ACME_KEY)
        await refused(service, old, ACME_KEY)
