"""`harmonium projects`, `keys`, `usage` and `audit`: what they do to the store, and what they print."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.commands.arguments import EXIT_NOT_FOUND, EXIT_USAGE
from service.commands.command_line import app
from service.features.tenants.records import is_whole
from tests.support.service.process import MODEL, ServiceProcess

ADMIN = "an-administrators-key-of-the-settings"
PARALLEL = "max_parallel_responses"

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    """A service whose embedded server is in the folder of the commands, which use that."""
    for name in ("HARMONIUM_REDIS_URL", "HARMONIUM_REDIS_PREFIX"):
        monkeypatch.delenv(name)
    process = ServiceProcess(tmp_path, admin_key=ADMIN)
    yield process
    process.stop()


def run(*arguments: str) -> Result:
    """A command, as somebody types it."""
    return CliRunner().invoke(app, arguments)


def told(*arguments: str) -> Any:
    """The object that a command prints as JSON."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def listed(*arguments: str) -> list[Any]:
    """The objects that a command prints as JSON, one a line."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_project_and_its_key_are_made_shown_and_ended() -> None:
    project = told("projects", "create", "Chat")["id"]
    made = told("keys", "create", project, "--account", "web", "--scope", "api.responses.write", "--days", "1")
    assert is_whole(made["value"].encode())
    assert made["expires_at"] - made["created_at"] == 86_400
    (shown,) = listed("keys", "list", project)
    assert (shown["id"], shown["account"], shown["scopes"]) == (made["id"], "web", ["api.responses.write"])
    assert made["value"] not in json.dumps(shown)
    assert told("projects", "update", project, "--name", "Talk")["name"] == "Talk"
    assert told("keys", "revoke", project, made["id"], "-y") == {"id": made["id"], "deleted": True}
    assert listed("keys", "list", project) == []
    assert told("projects", "archive", project, "--yes")["archived_at"]
    assert listed("projects", "list") == []
    other = told("projects", "create", "Other")["id"]
    assert [each["id"] for each in listed("projects", "list", "--archived")] == [project, other]


def test_a_name_is_shown_as_it_is() -> None:
    name = "[/x] of [bold]Bo[/bold] :smile:"
    told("projects", "create", name)
    assert f"  {name}  " in run("projects", "list").stdout


@pytest.mark.parametrize(
    "ends",
    [("projects", "archive", "proj_x"), ("keys", "revoke", "proj_x", "key_x"), ("keys", "revoke-admin", "key_x")],
)
def test_an_end_for_ever_is_asked_about_first(ends: tuple[str, ...]) -> None:
    result = run(*ends)
    assert (result.exit_code, "without a terminal use --yes" in result.stderr) == (1, True), result.output
    refused = CliRunner().invoke(app, ends, input="n\n")
    assert (refused.exit_code, "nothing was changed" in refused.stderr) == (1, True), refused.output
    assert CliRunner().invoke(app, ends, input="y\n").exit_code == EXIT_NOT_FOUND


def test_the_audit_log_has_each_change_a_line() -> None:
    project = told("projects", "create", "Chat")["id"]
    told("keys", "create", project)
    told("projects", "create", "Other")
    lines = [json.loads(line) for line in run("audit", "--json").stdout.splitlines()]
    assert [each["type"] for each in lines] == [
        *("project.created", "api_key.created", "service_account.created", "project.created")
    ]
    assert {each["actor"]["api_key"]["id"] for each in lines} == {"command-line"}
    only = [json.loads(line) for line in run("audit", "--json", "--project", project).stdout.splitlines()]
    assert only == lines[1:]
    assert (listed("audit", "--since", "1h"), listed("audit", "--since", "2099-01-01")) == (lines, [])


def test_a_project_is_given_a_weight_and_another_name() -> None:
    made = told("projects", "create", "Chat", "--weight", "2.5")
    assert (made["weight"], told("projects", "create", "Other")["weight"]) == (2.5, None)
    project = made["id"]
    both = told("projects", "update", project, "--name", "Talk", "--weight", "1")
    assert (both["name"], both["weight"]) == ("Talk", 1.0)
    assert told("projects", "update", project, "--name", "Chat")["weight"] == 1.0
    assert told("projects", "update", project, "--weight", "none")["weight"] is None
    noting = [
        told("projects", "update", project, "--trajectories", each)["trajectories"] for each in ("on", "off", "none")
    ]
    assert noting == [True, False, None]


def test_limits_of_a_project_are_set_shown_and_taken_away() -> None:
    project = told("projects", "create", "Chat")["id"]
    made = told("projects", "limits", project, *("--set", "max_tokens_per_1_month=0"), *("--set", PARALLEL + "=2"))
    assert (made["max_tokens_per_1_month"], made[PARALLEL]) == (0, 2)
    assert made["max_requests_per_1_minute"] is None
    assert told("projects", "limits", project) == made
    left = told("projects", "limits", project, "--set", "max_tokens_per_1_month=none")
    assert (left["max_tokens_per_1_month"], left[PARALLEL]) == (None, 2)
    left = told("projects", "limits", project, "--clear")
    assert set(left.values()) == {None}


def test_which_models_a_project_may_use_is_said_shown_and_cleared() -> None:
    project = told("projects", "create", "Chat")["id"]
    allowed = told("projects", "models", project, "--allow", "a", "--allow", "b")
    assert allowed == {"id": project, "mode": "allow_list", "model_ids": ["a", "b"]}
    assert told("projects", "models", project) == allowed
    assert told("projects", "models", project, "--deny", "c")["mode"] == "deny_list"
    assert told("projects", "models", project, "--clear")["model_ids"] == []


def test_usage_is_what_was_answered_by_project_key_and_model(service: ServiceProcess) -> None:
    project, other = (told("projects", "create", name)["id"] for name in ("Chat", "Other"))
    key = told("keys", "create", project)
    with service.client(key["value"]) as client:
        usages = [client.responses.create(model=MODEL, input="hi", store=store).usage for store in (True, False)]
    service.stop()
    tokens = [sum(each.input_tokens for each in usages if each), sum(each.output_tokens for each in usages if each)]
    (row,) = listed("usage")
    assert [row[name] for name in ("project", "requests", "input_tokens", "output_tokens")] == [project, 2, *tokens]
    by = listed("usage", "--by", "project", "--by", "key", "--by", "model", "--since", "1d", "--project", project)
    assert by == [row | {"key": key["id"], "model": "demo"}]
    assert listed("usage", "--project", other) == []
    assert [row["requests"] for row in listed("usage", "--since", "2026-01-01")] == [2]


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("keys", "create", "proj_nobody"), "No project", EXIT_NOT_FOUND),
        (("projects", "archive", "proj_nobody", "-y"), "No project", EXIT_NOT_FOUND),
        (("keys", "revoke-admin", "key_nobody", "-y"), "No ", EXIT_NOT_FOUND),
        (("projects", "models", "p", "--allow", "a", "--deny", "b"), "give only one of", EXIT_USAGE),
        (("projects", "limits", "p", "--set", "foo"), "should be NAME=NUMBER", EXIT_USAGE),
        (("usage", "--since", "soon"), "'soon' is not a time", EXIT_USAGE),
        (("audit", "--since", "soon"), "'soon' is not a time", EXIT_USAGE),
        (("projects", "create", " "), "Invalid value for 'name'", EXIT_USAGE),
        (("projects", "update", "proj_nobody", "--weight", "1001"), "Invalid value for 'weight'", EXIT_USAGE),
        (("projects", "update", "proj_nobody"), "nothing to change: give", EXIT_USAGE),
        (
            ("projects", "limits", "p", "--set", "max_parallel_responses=9999999999"),
            "should be NAME=NUMBER",
            EXIT_USAGE,
        ),
        (("projects", "models", "proj_nobody", "--allow", "m" * 257), "Invalid value for 'model_ids'", EXIT_USAGE),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], words: str, status: int) -> None:
    result = run(*arguments)
    assert result.exit_code == status
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr


def test_a_service_that_runs_takes_them_at_once(service: ServiceProcess) -> None:
    project = told("projects", "create", "Chat")["id"]
    key = told("keys", "create", project)
    assert service.client(key["value"]).responses.create(model=MODEL, input="hi").output_text
    made = told("keys", "create-admin", "ops")
    organization = "/v1/organization/projects"
    assert service.http(made["value"]).get(organization).json()["data"][0]["id"] == project
    assert [each["id"] for each in listed("keys", "list-admin")] == [made["id"]]
    told("keys", "revoke-admin", made["id"], "--yes")
    assert service.http(made["value"]).get(organization).status_code == 401
