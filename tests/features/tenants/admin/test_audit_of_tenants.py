"""What tenants delete and erase, and wrong keys, in the audit log: who did it and to what, and no contents."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.features.tenants.records import new_value
from service.process import Settings
from tests.features.tenants.admin.test_admin import STATIC, administered, new_key
from tests.support.service.process import MODEL
from tests.support.waiting import until

WORDS = "my secret words"


async def entries(client: AsyncOpenAI, *types: str) -> list[dict[str, Any]]:
    """The log of these types, the oldest first."""
    found = [each.to_dict() async for each in client.admin.organization.audit_logs.list(event_types=list(types))]  # type: ignore[arg-type]
    return found[::-1]


async def made(user: AsyncOpenAI, **more: Any) -> str:
    return (await user.responses.create(model=MODEL, input=WORDS, **more)).id


async def test_what_a_key_deletes_and_erases_is_in_the_log(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        id, value = await new_key(client, project.id)
        async with inside.client(value) as user:
            deleted, erased, tree = [await made(user) for _ in range(3)]
            await user.responses.delete(deleted)
            await user.responses.delete(erased, extra_query={"erase": True})
            await user.responses.delete(tree, extra_query={"tree": True})
            conversation = await user.conversations.create(items=[{"role": "user", "content": WORDS}] * 2)  # type: ignore[list-item]
            items = [each.id async for each in user.conversations.items.list(conversation.id, order="asc")]
            await user.conversations.items.delete(items[0], conversation_id=conversation.id)  # type: ignore[arg-type]
            await user.conversations.items.delete(
                items[1],  # type: ignore[arg-type]
                conversation_id=conversation.id,
                extra_query={"erase": True},
            )
            await user.conversations.delete(conversation.id)
            with pytest.raises(openai.NotFoundError):
                await user.responses.delete(deleted)
        log = await entries(
            client, *("response.deleted", "response.erased", "conversation.deleted", "item.deleted", "item.erased")
        )
        assert [(each["type"], each[each["type"]]) for each in log] == [
            ("response.deleted", {"id": deleted}),
            ("response.erased", {"id": erased}),
            ("response.erased", {"id": tree, "data": {"tree": True}}),
            ("item.deleted", {"id": items[0], "data": {"conversation": conversation.id}}),
            ("item.erased", {"id": items[1], "data": {"conversation": conversation.id}}),
            ("conversation.deleted", {"id": conversation.id}),
        ]
        assert {each["actor"]["api_key"]["id"] for each in log} == {id}
        assert {each["project"]["id"] for each in log} == {project.id}
        assert WORDS not in json.dumps(log)
        assert value not in json.dumps(log)


async def test_a_log_that_takes_no_entry_fails_no_request(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    async with administered(settings) as (inside, _), inside.client(STATIC) as user:
        id = await made(user)
        keys = inside.store.keyspace.all_shards()[0]
        async with inside.store.server.operation() as operation:
            await operation.command("SET", keys.audit_entries, "no stream")
        assert await user.responses.delete(id) is None
        with pytest.raises(openai.NotFoundError):
            await user.responses.retrieve(id)
        assert any("no entry was made in the audit log" in each.message for each in caplog.records)


async def test_keys_that_open_nothing_are_in_the_log_but_not_one_by_one(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        async with inside.http() as http:
            assert (await http.get("/v1/models")).status_code == 401  # none at all is no failed login
        wrong = new_value()
        async with inside.client(wrong) as stranger:
            for _ in range(10):
                with pytest.raises(openai.AuthenticationError):
                    await stranger.models.list()
        log = await until(lambda: entries(client, "login.failed"), 10)
        assert len(log) <= 2, "one a minute"
        assert log[0]["actor"] == {"type": "session", "session": {"ip_address": "127.0.0.1"}}
        assert log[0]["login.failed"]["error_code"] == "invalid_api_key"
        assert log[0]["login.failed"]["id"].startswith("req_")
        assert "project" not in log[0]
        assert wrong[:12] not in json.dumps(log)
