"""What waits and what runs over HTTP: a key's own, until it has ended, and never another tenant's."""

from collections.abc import Callable
from typing import Any

import pytest

from service.commands.client.reading import line_of
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served
from tests.support.waiting import wait_until

JOBS = "/console/api/jobs"
NEVER_ENDING = "Count to 1000."


def test_a_response_is_listed_while_it_is_under_way(beside: Callable[..., Served]) -> None:
    service = beside(shards=2, demo_tokens_per_second=50)
    client, http = service.client(), service.http()
    assert http.get(JOBS).json() == {"object": "list", "data": [], "has_more": False}
    root = client.responses.create(model=MODEL, input="My name is Ada.").id
    made = [
        client.responses.create(model=MODEL, input=NEVER_ENDING, background=True, previous_response_id=parent).id
        for parent in (None, root, None)
    ]
    listed: list[dict[str, Any]] = http.get(JOBS).json()["data"]
    assert {job["id"] for job in listed} == set(made)
    (below,) = [job for job in listed if job["id"] == made[1]]
    assert (below["parent"], below["model"], below["input"], below["kind"]) == (root, MODEL, NEVER_ENDING, "response")
    assert {job["status"] for job in listed} <= {"queued", "in_progress"}
    some = http.get(JOBS, params={"limit": 2}).json()
    assert (len(some["data"]), some["has_more"]) == (2, True)
    for id in made:
        client.responses.cancel(id)
    wait_until(lambda: http.get(JOBS).json()["data"] == [])


def test_the_window_of_what_has_hours_is_listed(beside: Callable[..., Served]) -> None:
    service = beside(worker=False)
    client, http = service.client(), service.http()
    for window in ("8h", "2h", "soonest"):
        options: Any = {"completion_window": window, "continuation_id": "nightly"}
        response = client.responses.create(model=MODEL, input="hi", background=True, background_options=options)
        assert (response.status, response.service_tier) == ("queued", "default")
    jobs = http.get(JOBS).json()["data"]
    assert sorted((job["completion_window"] for job in jobs), key=str) == ["2h", "8h", None]
    assert [line_of(job).split("  ")[4] for job in jobs if job["completion_window"] == "2h"] == ["within 2h"]


def test_another_tenants_are_not_listed(beside: Callable[..., Served]) -> None:
    service = beside(api_keys=f"acme:{ACME_KEY},globex:{GLOBEX_KEY}", demo_tokens_per_second=50)
    id = service.client(ACME_KEY).responses.create(model=MODEL, input=NEVER_ENDING, background=True).id
    assert [job["id"] for job in service.http(ACME_KEY).get(JOBS).json()["data"]] == [id]
    assert service.http(GLOBEX_KEY).get(JOBS).json()["data"] == []
    assert service.http("sk-somebody-elses").get(JOBS).status_code == 401


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=some", "status=queued"])
def test_what_makes_no_sense_is_refused(service: Served, query: str) -> None:
    answer = service.http().get(f"{JOBS}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
