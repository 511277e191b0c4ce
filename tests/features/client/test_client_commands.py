"""`harmonium ask`, `show`, `log`, `tail`, `wait`, `cancel`, `rm` and `jobs` against a service."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from service.features.client.profile import Profile
from service.features.client.reading import changes
from service.features.client.service import RemoteService
from tests.support.pictures import png, url_of
from tests.support.ports import free_port
from tests.support.service.commands import id_of, run, said, told
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, ServiceProcess
from tests.support.service.terminal import CTRL_C, at_a_terminal
from tests.support.waiting import wait_until

NOBODYS = "resp_00" + "0" * 46
PACE = 100
NEVER_ENDING = "Count to 10000."


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
    behind = str(events[-1]["sequence_number"])
    last = json.loads(said("tail", id, "--json", "--after", behind))
    assert (last["type"], last["sequence_number"]) == ("response.completed", int(behind))


@pytest.mark.usefixtures("service")
def test_a_background_response_is_cancelled_and_what_it_said_stays() -> None:
    id = said("ask", "--background", NEVER_ENDING).strip()
    assert "is still" in run("wait", id, "--timeout", "0").stderr
    assert "0 or more" in run("wait", id, "--timeout", "nan").stderr
    assert told("cancel", id)["status"] == "cancelled"
    said("wait", id, status=1)
    assert "cancelled" in run("tail", id).stderr


def test_following_goes_on_after_the_service_was_killed(tmp_path: Path) -> None:
    with_data = ServiceProcess(tmp_path, demo_tokens_per_second=PACE, lease_seconds=9, store_timeout_seconds=3)
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


def test_tokens_are_lines_in_which_a_mark_is_never_quoted(service: ServiceProcess) -> None:
    id = id_of(run("ask", "<|end|>\n caf\u00e9 " + "word " * 4_500))
    result = run("show", id, "--tokens")
    pages = [json.loads(line) for line in said("show", id, "--tokens", "--json").splitlines()]
    assert (len(pages), pages[0]) == (2, service.http().get(f"/console/api/turns/{id}/tokens").json())
    head, *lines = result.stdout.splitlines()
    assert head == f"user ({pages[0]['messages'][0]['length']} tokens)"
    assert lines[:3] == ["  200006 <|start|>", '    1428 "user"', "  200008 <|message|>"]
    assert lines[3:7] == ['      27 "<"', '      91 "|"', '     419 "end"', '      91 "|"']
    heads = [head, *(line for line in lines if not line.startswith("  "))]
    assert heads[-1].startswith("assistant/final (")
    assert len(lines) + 1 == pages[0]["length"] + len(heads)
    assert f"{pages[0]['length']} tokens; the model read {pages[0]['input_tokens']} (" in result.stderr


@pytest.mark.usefixtures("service")
def test_two_forks_are_compared_from_where_they_part() -> None:
    first = id_of(run("ask", "My name is Ada."))
    one = id_of(run("ask", "--from", first, "What is my name?"))
    other = id_of(run("ask", "--from", first, "Count to 2."))
    printed = run("diff", one, other).stdout.splitlines()
    assert [line for line in printed if line[2:6] == "user"] == ["- user: What is my name?", "+ user: Count to 2."]
    told = json.loads(said("diff", one, other, "--json", status=1))
    assert (told["in_common"], len(told[one]), len(told[other])) == (3, 3, 3)
    assert said("diff", one, one) == ""


@pytest.mark.usefixtures("service")
def test_a_response_is_deleted_when_somebody_says_so() -> None:
    id = id_of(run("ask", "Count to 2."))
    assert "nothing was deleted" in run("rm", id, stdin="n\n").stderr
    assert "use --yes" in run("rm", id, stdin="").stderr
    assert said("show", id)
    assert said("rm", id, stdin="y\n").endswith(f"deleted {id}\n")
    said("show", id, status=3)


def test_an_interrupted_question_ends_with_130(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "rm", NOBODYS) as asking:
        asking.shows("[y/N]")
        wait_until(asking.reads_keys)
        asking.press(CTRL_C)
        status, _ = asking.end(60)
    assert status == 130, asking.text


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["show", NOBODYS], 3, "not found"),
        (["show", "../models"], 2, "not an id"),
        (["show", "resp_ffff00"], 3, "no id begins with 'resp_ffff00' in the "),
        (["show", "resp_00"], 2, "'resp_00' is too short: the beginning of an id has at least 4 digits"),
        (["ask"], 2, "nothing to send"),
        (["ask", "-c", "--from", NOBODYS, "hi"], 2, "only one of"),
        (["show", "--json", "--items", NOBODYS], 2, "only one of"),
        (["ask", "--url", "ftp://nowhere", "hi"], 2, "not the URL"),
        (["ask", "--url", f"http://127.0.0.1:{free_port()}", "hi"], 5, "can't reach"),
        (["jobs", "--watch", "--url", f"http://127.0.0.1:{free_port()}"], 5, "can't reach"),
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


# --- jobs ---


def begun() -> str:
    return said("ask", "--background", NEVER_ENDING).strip()


def ended(id: str) -> None:
    said("cancel", id)
    said("wait", id, status=1)


@pytest.mark.usefixtures("service")
def test_what_runs_is_listed_until_it_has_ended() -> None:
    id_of(run("ask", "Count to 2."))
    id = begun()
    (line,) = [line for line in said("jobs").splitlines() if line.startswith(id)]
    assert line.endswith(NEVER_ENDING)
    (job,) = [each for each in map(json.loads, said("jobs", "--json").splitlines()) if each["id"] == id]
    assert job["status"] in ("queued", "in_progress")
    other = begun()
    newest = run("jobs", "--limit", "1")
    assert (newest.stdout.split()[0], newest.stderr) == (other, "… --limit shows more\n")
    ended(other)
    ended(id)
    nothing = run("jobs")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "nothing is waiting or running\n")


def test_watching_at_a_terminal_shows_them_in_one_place(service: ServiceProcess, tmp_path: Path) -> None:
    id = begun()
    with at_a_terminal(tmp_path, "jobs", "--watch", url=service.url) as watching:
        wait_until(lambda: "\x1b[1F\x1b[J" in watching.raw, 60, "it is not drawn a second time, over the first")
        ended(id)
        watching.shows("nothing is waiting or running")
        watching.press(CTRL_C)
        status, _ = watching.end(60)
    assert (status, id[:15] in watching.text) == (130, True), watching.text


@pytest.mark.usefixtures("service")
def test_watching_in_a_pipe_tells_each_change_once(service: ServiceProcess) -> None:
    first = begun()
    deeds: list[Callable[[], object]] = [lambda: None, lambda: ended(first), lambda: None]
    told: list[tuple[str, str]] = []
    with suppress(IndexError):  # there is nothing more to do
        watched = changes(RemoteService(Profile(service.url, None, None)), lambda: deeds.pop(0)())
        told.extend((job["id"], job["status"]) for job in watched)
    assert told[-1] == (first, "cancelled")
    assert len(told) == len(set(told))
