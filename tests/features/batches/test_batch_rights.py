"""The rights of a batch are those of its key, as they are when a line is made."""

import asyncio

import openai
import pytest
from pydantic import SecretStr

from service.features.batches import running
from service.process import Settings
from service.settings.core import parse_api_keys
from tests.features.tenants.admin.test_admin import ADMIN, STATIC, admin, administered, new_key
from tests.support.batches import answers_of, begun, ended, lines
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import MODEL
from tests.support.waiting import until


async def test_a_line_may_do_what_the_key_of_its_batch_may(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Night")
        _, whole = await new_key(client, project.id)
        _, restricted = await new_key(client, project.id, scopes=["api.responses.write", "api.files.write"])
        async with inside.client(whole) as owner, inside.client(restricted) as user:
            secret = await owner.files.create(file=("secret.txt", b"heron"), purpose="user_data")
            part = {"type": "input_file", "file_id": secret.id}
            batch = await begun(user, lines({"input": [{"role": "user", "content": [part]}]}, {"input": "a"}))
            batch = await ended(owner, batch.id)
            assert (await answers_of(owner, batch.output_file_id)).keys() == {"line-1"}
            refused = (await answers_of(owner, batch.error_file_id))["line-0"]["response"]
            assert refused["status_code"] == 403
            assert "api.files.read" in refused["body"]["error"]["message"]


@pytest.mark.parametrize("code", ["invalid_api_key", "insufficient_permissions"])
async def test_a_batch_makes_no_more_lines_once_its_key_is_revoked_or_may_only_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(running, "WINDOW", 3)
    monkeypatch.setattr(running, "PART_LINES", 3)
    engine = scripted([answer("Hello.")], [opened("Hm"), Stall()], [answer("Hello.")])
    keys = changed(
        settings, admin_key=SecretStr(ADMIN), api_keys=parse_api_keys(f"acme:{STATIC}"), worker_concurrency=1
    )
    async with serving(keys, engine) as inside, admin(inside) as client:
        projects = client.admin.organization.projects
        project = await projects.create(name="Night")
        (id, value), (_, other) = await new_key(client, project.id), await new_key(client, project.id)
        async with inside.client(value) as user, inside.client(other) as owner:
            batch = await begun(user, lines(*({"input": str(number)} for number in range(20))))
            await until(lambda: len(engine.generations) >= 2)
            if code == "invalid_api_key":
                await projects.api_keys.delete(id, project_id=project.id)
            else:
                path, read = f"/v1/organization/projects/{project.id}/api_keys/{id}", {"scopes": ["api.responses.read"]}
                async with inside.http() as http:
                    await http.post(path, json=read, headers={"authorization": f"Bearer {ADMIN}"})
            await owner.responses.cancel(engine.generations[1].id)
            batch = await ended(owner, batch.id)
            refused = (await answers_of(owner, batch.error_file_id)).values()
            told = [each["response"]["body"]["error"]["code"] for each in refused]
            assert told.count(code) >= 15


async def test_a_line_waits_for_a_limit_that_is_used_up_for_longer_than_a_client_would(settings: Settings) -> None:
    async with administered(settings, [answer("so " * 2_000)], [answer("So.")]) as (inside, client):
        projects = client.admin.organization.projects
        project = await projects.create(name="Night")
        _, value = await new_key(client, project.id)
        await projects.rate_limits.update_rate_limit("rl-all", project_id=project.id, max_tokens_per_1_minute=700)
        async with inside.client(value) as user, inside.http() as http:

            async def may_retry() -> str:
                with pytest.raises(openai.RateLimitError) as refused:
                    await user.responses.create(model=MODEL, input="Hi")
                return refused.value.response.headers["x-should-retry"]

            await user.responses.create(model=MODEL, input="Hi")
            await until(may_retry, wanted=lambda told: told == "false")  # it took minutes of tokens
            batch = await begun(user, lines({"input": "a"}))
            await until(lambda: user.batches.retrieve(batch.id), wanted=lambda found: found.status != "validating")
            await asyncio.sleep(1)  # the line is refused, too
            path = f"/v1/organization/projects/{project.id}/rate_limits/rl-all"
            assert (await http.delete(path, headers={"authorization": f"Bearer {ADMIN}"})).is_success
            counts = (await ended(user, batch.id)).request_counts
            assert counts is not None
            assert (counts.completed, counts.failed) == (1, 0)
