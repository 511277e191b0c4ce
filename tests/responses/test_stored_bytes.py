"""What responses take of the store: what they have in common with each other is in the dictionary, and not in each."""

from typing import Any

import zstandard

from bench._dictionary.samples import Samples
from service.settings.settings import Settings
from store import codec
from store.redis.connection import connect
from tests.support.service.inside import Inside, serving
from tests.support.service.process import MODEL

WHO = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"], "additionalProperties": False}
FUNCTION = {"type": "function", "name": "file_report", "description": "File it.", "parameters": WHO, "strict": True}
SCHEMA = {"type": "json_schema", "name": "report", "schema": WHO, "strict": True}

BODIES: dict[str, dict[str, Any]] = {
    "an answer": {"input": "Tell me something.", "max_output_tokens": 64},
    "a call": {"input": "Use the file_report tool: Ada.", "tools": [FUNCTION]},
    "a structured answer": {"input": "Report on Ada.", "text": {"format": SCHEMA}},
    "with instructions": {"input": "Hello.", "instructions": "Be brief.", "metadata": {"a": "b"}},
}


async def stored(inside: Inside, settings: Settings, id: str) -> bytes:
    """The response blob of a response."""
    client = connect(settings.redis_url)
    try:
        return await client.get(inside.store.keyspace.turn("default", id).key("response"))
    finally:
        await client.aclose()


async def test_a_response_whose_dictionary_came_with_a_later_release_is_a_500_that_says_so(settings: Settings) -> None:
    theirs = zstandard.train_dictionary(1024, list(Samples(3).blobs(200)), dict_id=40_000)
    blob = bytes([codec.FORMAT, codec.ZSTD]) + zstandard.ZstdCompressor(dict_data=theirs).compress(b"again " * 100)
    async with serving(settings) as inside, inside.http() as http:
        made = (await http.post("/v1/responses", json={"model": MODEL, **BODIES["an answer"]})).json()
        client = connect(settings.redis_url)
        await client.set(inside.store.keyspace.turn("default", made["id"]).key("response"), blob)
        await client.aclose()
        refused = await http.get(f"/v1/responses/{made['id']}")
    assert refused.status_code == 500
    assert "was stored by a later release than the one that answers" in refused.json()["error"]["message"]
