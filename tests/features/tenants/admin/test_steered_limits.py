"""The successor of a steered response counts within limits as any other."""

from service.process import Settings
from tests.core.background.test_steering import given_back
from tests.features.tenants.admin.test_admin import administered, new_key
from tests.support.service.background import submitted
from tests.support.service.inside import opened
from tests.support.service.steered import Paused


async def test_a_successor_counts_within_the_limits_of_its_key(settings: Settings) -> None:
    paused = Paused(opened("One"))
    async with administered(settings, paused) as (inside, client):
        project = await client.admin.organization.projects.create(name="one")
        _, key = await new_key(client, project.id, extra_body={"limits": {"max_requests_per_1_minute": 1}})
        async with inside.client(key) as user, inside.http() as http:
            id = (await submitted(user)).id
            await paused.reached.wait()
            head = {"authorization": f"Bearer {key}"}
            assert (await http.post(f"/v1/responses/{id}/steer", json={"input": "On."}, headers=head)).is_success
            assert [code for _, code, _ in await given_back(user, id)] == ["successor_creation_failed"]
