"""Keys of the registry over several processes and restarts; and where none of them ever shows."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.service.process import MODEL, ServiceProcess

Start = Callable[..., ServiceProcess]
ADMIN = "an-administrators-key-of-the-settings"


def admin(service: ServiceProcess) -> OpenAI:
    return OpenAI(base_url=f"{service.url}/v1", admin_api_key=ADMIN, api_key="none", max_retries=0, timeout=30)


def status(service: ServiceProcess, key: str) -> int:
    """What a request on a connection of its own is answered with: any of the processes may have it."""
    headers = {"authorization": f"Bearer {key}"}
    return httpx.get(f"{service.url}/v1/models", headers=headers, timeout=30, trust_env=False, verify=False).status_code


def new_project(client: OpenAI) -> tuple[str, str, str]:
    project = client.admin.organization.projects.create(name="Chat")
    account = client.admin.organization.projects.service_accounts.create(project.id, name="web")
    assert account.api_key is not None
    return project.id, account.api_key.id, account.api_key.value


def test_a_deleted_key_opens_nothing_in_any_process_within_a_second(start: Start) -> None:
    service = start(admin_key=ADMIN, workers=3)
    with admin(service) as client:
        project, id, value = new_project(client)
        assert {status(service, value) for _ in range(30)} == {200}
        client.admin.organization.projects.api_keys.delete(id, project_id=project)
        deleted = time.monotonic()
        latest, refused = 0.0, 0
        while refused < 30:
            began = time.monotonic()
            if status(service, value) == 401:
                refused += 1
            else:
                latest, refused = began - deleted, 0
        assert latest < 1


def test_keys_outlive_a_kill_of_the_service(start: Start) -> None:
    service = start(admin_key=ADMIN)
    assert "no API keys" not in service.log
    with admin(service) as client:
        project, id, value = new_project(client)
        service.kill()
        service.start()
        assert status(service, value) == 200
        client.admin.organization.projects.api_keys.delete(id, project_id=project)
        service.kill()
        service.start()
        assert status(service, value) == 401


def test_no_keys_value_is_anywhere_but_in_one_answer(start: Start, tmp_path: Path) -> None:
    service = start(admin_key=ADMIN, log_level="debug", metrics_key="metrics-0123456789abcdef")
    with admin(service) as client, service.client(ADMIN):
        project, id, value = new_project(client)
        made = client.admin.organization.admin_api_keys.create(name="ops")
        secrets = [value, made.value, ADMIN]
        user = service.client(value)
        user.responses.create(model=MODEL, input="hi", background=True)
        for key in (made.value, ADMIN, value[:-1], value + "x"):
            with pytest.raises(openai.APIStatusError) as refusal:
                service.client(key).responses.create(model=MODEL, input="hi")
            assert not any(secret in refusal.value.response.text for secret in secrets)
        client.admin.organization.projects.api_keys.delete(id, project_id=project)
        shown = [
            service.log,
            service.http("metrics-0123456789abcdef").get("/metrics").text,
            *(each.model_dump_json() for each in client.admin.organization.audit_logs.list(limit=100)),
            *(each.model_dump_json() for each in client.admin.organization.admin_api_keys.list()),
        ]
        service.stop()
        stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        for secret in secrets:
            assert not any(secret in text for text in shown)
            assert secret.encode() not in stored
        assert re.search("sk-hm-...\\.\\.\\.", stored.decode("latin-1"))
