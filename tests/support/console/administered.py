"""Projects to administer: two with keys that were used, one that is archived, and what was done of it by whom."""

from typing import NamedTuple

from openai import OpenAI

from tests.support.service.process import MODEL, Served

ADMIN_KEY = "sk-admin-of-the-settings-0123456789"


def admin(service: Served, key: str = ADMIN_KEY) -> OpenAI:
    """The official client as an administrator has it, to be closed by whoever asked for it."""
    return OpenAI(base_url=f"{service.url}/v1", admin_api_key=key, api_key="none", max_retries=0, timeout=30)


class Administered(NamedTuple):
    """A project, and the value of a key of it."""

    project: str
    key: str


def with_key(client: OpenAI, name: str, account: str = "worker") -> Administered:
    """A project with a service account and its key."""
    projects = client.admin.organization.projects
    project = projects.create(name=name).id
    made = projects.service_accounts.create(project, name=account)
    assert made.api_key is not None
    return Administered(project, made.api_key.value)


def fill(service: Served) -> Administered:
    """Have projects that were used; the one that was used most."""
    with admin(service) as client:
        projects = client.admin.organization.projects
        letters = with_key(client, "Letters", "mailer")
        travel = with_key(client, "Travel", "planner")
        projects.archive(with_key(client, "Trial of last year").project)
        (account,) = projects.service_accounts.list(letters.project).data
        projects.service_accounts.api_keys.create(
            account.id,
            project_id=letters.project,
            name="for the dashboard",
            scopes=["api.all.read"],
            extra_body={"expires_in_seconds": 30 * 86_400},
        )
        projects.rate_limits.update_rate_limit(
            "rl-all", project_id=letters.project, max_requests_per_1_minute=600, max_tokens_per_1_minute=200_000
        )
    for value, times in ((letters.key, 3), (travel.key, 1)):
        for _ in range(times):
            service.client(value).responses.create(model=MODEL, input="Tell me a story.")
    return letters
