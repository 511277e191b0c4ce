"""`harmonium ask`, `show`, `log`, `tail`, `wait`, `cancel` and `rm` against a service."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pictures import png, url_of
from tests.support.ports import free_port
from tests.support.service.commands import id_of, run, said, told
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, ServiceProcess

NOBODYS = "resp_00" + "0" * 46
PACE = 100
NEVER_ENDING = "Count to 1000."


def test_an_answer_goes_to_stdout_and_its_id_to_stderr(service: ServiceProcess) -> None:
    result = run("ask", "Count", "to", "3.")
    assert result.stdout == "1\n2\n3\n"
    assert service.client().responses.retrieve(id_of(result)).output_text == "1\n2\n3"


def test_pictures_and_what_is_piped_in_are_added_to_the_words(service: ServiceProcess, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    id = id_of(run("ask", "Review this.", "--image", str(tmp_path / "a.png"), stdin="a line\n"))
    (item,) = service.client().responses.input_items.list(id).data
    words, shown = item.model_dump()["content"]
    assert (words["text"], shown["image_url"]) == ("Review this.\n\na line\n", url_of(png()))


@pytest.mark.usefixtures("service")
def test_the_last_answer_is_continued_and_any_other_too() -> None:
    first = id_of(run("ask", "My name is Ada."))
    second = run("ask", "-c", "What is my name?")
    assert second.stdout == "Your name is Ada.\n"
    assert said("ask", "--from", first, "What is my name?") == "Your name is Ada.\n"
    assert told("ask", "-c", "And again?")["previous_response_id"] not in (first, id_of(second))


def test_something_is_said_in_a_conversation(service: ServiceProcess) -> None:
    conversation = service.client().conversations.create().id
    said("ask", "--conv", conversation, "My name is Ada.")
    assert said("ask", "--conv", conversation, "What is my name?") == "Your name is Ada.\n"


def test_what_is_asked_for_is_sent(service: ServiceProcess, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {}, "required": [], "additionalProperties": false}')
    wanted = ("--effort", "high", "--temperature", "0.5", "--schema", str(schema), "-m", "gpt-oss-20b")
    response = told("ask", "Go.", "-s", "Be brief.", *wanted)
    assert response["temperature"] == 0.5
    assert response["instructions"] == "Be brief."
    assert response["reasoning"]["effort"] == "high"
    assert response["text"]["format"]["schema"] == json.loads(schema.read_text())
    assert service.client().responses.retrieve(response["id"]).status == "completed"


def test_a_background_response_is_followed_waited_for_and_shown(service: ServiceProcess) -> None:
    id = said("ask", "--background", "Count to 3.").strip()
    assert said("tail", id) == "1\n2\n3\n"
    assert said("wait", id) == "1\n2\n3\n"
    events = [json.loads(line) for line in said("tail", id, "--json", "--after", "2").splitlines()]
    assert [each["sequence_number"] for each in events] == list(range(3, 3 + len(events)))
    assert service.client().responses.retrieve(id).background


@pytest.mark.usefixtures("service")
def test_a_background_response_is_cancelled_and_what_it_said_stays() -> None:
    id = said("ask", "--background", NEVER_ENDING).strip()
    assert "is still" in run("wait", id, "--timeout", "0").stderr
    assert told("cancel", id)["status"] == "cancelled"
    said("wait", id, status=1)
    assert "cancelled" in run("tail", id).stderr


def test_following_goes_on_after_the_service_was_killed(tmp_path: Path) -> None:
    with_data = ServiceProcess(tmp_path, demo_tokens_per_second=PACE, lease_seconds=4, store_timeout_seconds=1)
    try:
        where = ("--url", with_data.url)
        id = said("ask", "--background", "Count to 60.", *where).strip()
        command = [sys.executable, "-m", "service", "tail", id, *where]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            begun = following.stdout.readline()
            with_data.kill()
            with_data.start()
            assert begun + following.stdout.read() == "".join(f"{number}\n" for number in range(1, 61))
            assert following.wait(60) == 0
    finally:
        with_data.stop()


@pytest.mark.usefixtures("service")
def test_a_response_is_shown_with_all_that_led_to_it() -> None:
    first = id_of(run("ask", "My name is Ada."))
    second = id_of(run("ask", "--from", first, "What is my name?"))
    shown = said("show", second)
    assert "\nuser: My name is Ada.\n" in shown
    assert shown.endswith("\nassistant: Your name is Ada.\n")
    kinds = [json.loads(line)["type"] for line in said("show", second, "--items").splitlines()]
    assert kinds == ["message", "reasoning", "message"] * 2
    lines = said("log", second).splitlines()
    assert [line.split()[0] for line in lines] == [second, "<", ">", first, "<", ">"]


@pytest.mark.usefixtures("service")
def test_an_id_is_meant_by_its_beginning_and_the_newest_by_none() -> None:
    first = id_of(run("ask", "My name is Ada."))
    second = id_of(run("ask", "--from", first[:15], "What is my name?"))
    assert told("show", second)["previous_response_id"] == first
    for command in ("show", "log", "tree"):
        assert said(command, second[:45]) == said(command, "@last") == said(command) == said(command, second), command
        assert said(command, first[5:15]) == said(command, second), "what all turns begin with is the newest"
    assert said("export", first[:45]) == said("export", first)
    assert said("rm", "--yes", "@last") == f"deleted {second}\n"
    third = id_of(run("ask", "--from", first, "And mine?"))
    fourth = id_of(run("ask", "--from", first, "And yours?"))
    assert said("show", third[5:]).startswith(third)  # which uses its branch last
    assert said("rm", "--yes", first[:15]) == f"deleted {fourth}\n", "the newest is the one that was made last"


@pytest.mark.usefixtures("service")
def test_two_forks_are_compared_from_where_they_part() -> None:
    first = id_of(run("ask", "My name is Ada."))
    one = id_of(run("ask", "--from", first, "What is my name?"))
    other = id_of(run("ask", "--from", first, "Count to 2."))
    printed = run("diff", one, other).stdout.splitlines()
    assert [line for line in printed if "user" in line] == ["- user: What is my name?", "+ user: Count to 2."]
    told = json.loads(said("diff", one, other, "--json", status=1))
    assert (told["in_common"], len(told[one]), len(told[other])) == (3, 3, 3)
    assert said("diff", one, one) == ""


@pytest.mark.usefixtures("service")
def test_a_response_is_deleted_when_somebody_says_so() -> None:
    id = id_of(run("ask", "Count to 2."))
    assert "nothing was deleted" in run("rm", id, stdin="n\n").stderr
    assert said("show", id)
    assert said("rm", id, stdin="y\n").endswith(f"deleted {id}\n")
    said("show", id, status=3)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["show", NOBODYS], 3, "not found"),
        (["show", "../models"], 2, "no id"),
        (["show", "resp_ffff00"], 3, "no id begins with 'resp_ffff00' in the "),
        (["ask"], 2, "nothing to say"),
        (["ask", "-c", "--from", NOBODYS, "hi"], 2, "only one of"),
        (["show", "--json", "--items", NOBODYS], 2, "only one of"),
        (["ask", "--url", "ftp://nowhere", "hi"], 2, "no URL"),
        (["ask", "--url", f"http://127.0.0.1:{free_port()}", "hi"], 5, "can't reach"),
        (["ask", "--key-env", "NOBODYS_KEY", "hi"], 2, "NOBODYS_KEY is not set"),
    ],
)
def test_what_goes_wrong_is_a_line_and_a_status(arguments: list[str], status: int, words: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_wrong_key_is_refused_and_another_tenants_response_is_not_found(
    tenants: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_URL", tenants.url)
    refused = run("ask", "hi")
    monkeypatch.setenv("HARMONIUM_CLIENT_KEY", "sk-somebody-elses")
    wrong = run("ask", "hi")
    monkeypatch.setenv("HARMONIUM_CLIENT_KEY", ACME_KEY)
    id = id_of(run("ask", "hi"))
    monkeypatch.setenv("OTHER", GLOBEX_KEY)
    assert id not in run("show", "@last", "--key-env", "OTHER").output
    for named in (id, id[:15], id[:45]):
        others = run("show", named, "--key-env", "OTHER")
        assert (others.exit_code, others.stdout) == (3, ""), others.output
        assert said("show", named).startswith(id)
    assert (refused.exit_code, wrong.exit_code) == (4, 4)
    assert "HARMONIUM_CLIENT_KEY" in refused.stderr
    assert "Authorization" not in refused.stderr
    assert "elses" not in wrong.output


def test_a_clients_command_loads_little() -> None:
    asking = (
        "import atexit, sys\n"
        "sys.argv[1:] = ['ask', '--help']\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from service.__main__ import main\n"
        "main()"
    )
    modules = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True).stderr.split()
    assert "service.commands.client.command_line" in modules
    assert not {"fastapi", "starlette", "redis", "aiohttp", "service.settings"} & set(modules)


def test_tokens_are_lines_in_which_a_mark_is_never_quoted(service: ServiceProcess) -> None:
    id = id_of(run("ask", "<|end|>\n caf\u00e9 " + "word " * 4_500))
    result = run("show", id, "--tokens")
    told = [json.loads(line) for line in said("show", id, "--tokens", "--json").splitlines()]
    assert len(told) == 2
    assert told[0] == service.http().get(f"/console/api/turns/{id}/tokens").json()
    lines = result.stdout.splitlines()[1:]
    assert lines[:3] == ["  200006 <|start|>", '    1428 "user"', "  200008 <|message|>"]
    assert lines[3:7] == ['      27 "<"', '      91 "|"', '     419 "end"', '      91 "|"']
