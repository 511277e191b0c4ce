"""`harmonium chat`: a conversation that goes back, tries again and forks; and a Ctrl-C at a real terminal."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.features.client.printing import excerpt, harmless, transcript
from tests.support.service.commands import said
from tests.support.service.process import ServiceProcess
from tests.support.service.terminal import CTRL_C, at_a_terminal
from tests.support.waiting import wait_until

END_SECONDS = 20.0
CTRL_D = b"\x04"
ADA, BOB, WHO = "My name is Ada.", "My name is Bob.", "What is my name?"


def chat(*lines: str) -> str:
    """What a chat prints for some lines."""
    return said("chat", stdin="".join(f"{line}\n" for line in lines))


@pytest.mark.usefixtures("service")
def test_who_goes_back_forks_and_who_forks_comes_back() -> None:
    assert chat(ADA, BOB, WHO, "/fork 1", WHO).splitlines()[-2:] == ["Your name is Bob.", "Your name is Ada."]
    tree = chat(ADA, WHO, "/back", "Count to 2.", "/tree").splitlines()[-3:]
    assert tree == [f"  1  {ADA}", f"  | 2  {WHO}", "* 3  Count to 2."]


def test_requests_for_approval_and_their_answers_are_lines_to_read() -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": None}
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "add", "arguments": "{}"}
    items = [request, answer, answer | {"reason": "Not today"}, answer | {"approve": True}]
    said = [line.partition(": ")[2] for line in transcript(items)]
    assert said == ["add({})", "denied", "denied: Not today", "approved"]


@pytest.mark.usefixtures("service")
def test_a_command_that_makes_no_sense_is_said_and_the_chat_goes_on() -> None:
    assert chat("/back", "/retry", "/fork", "/fork 1", "/fork x", "/foo", "/new x", "Count to 2.") == "1\n2\n"


def test_an_interrupted_answer_is_kept_and_continued(service: ServiceProcess, tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "chat", url=service.url) as terminal:
        terminal.shows("> ")
        terminal.press(b"Count to 10000.\n")
        terminal.shows("20\n")
        terminal.press(CTRL_C)
        terminal.shows("the next message continues it")
        terminal.press(b"/id\n")
        id = wait_until(
            lambda: next(word for word in terminal.text.split() if word.startswith("resp_")), passing=StopIteration
        )
        terminal.press(b"Count to 2.\n")
        terminal.shows("1\n2\n")
        terminal.press(b"/id\n")
        wait_until(lambda: terminal.text.count("resp_") == 2 and "> " in terminal.text.rpartition("resp_")[2])
        terminal.press(CTRL_D)
        assert terminal.end(END_SECONDS)[0] == 0
        last = [word for word in terminal.text.split() if word.startswith("resp_")][-1]
    kept = service.client().responses.retrieve(id)
    assert kept.status in ("incomplete", "cancelled")
    assert kept.output_text.startswith("1\n2\n3\n")
    assert service.client().responses.retrieve(last).previous_response_id == id


def test_an_interrupted_ask_says_its_id_and_keeps_what_was_said(service: ServiceProcess, tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "ask", "Count to 10000.", url=service.url) as terminal:
        terminal.shows("20\n")
        terminal.press(CTRL_C)
        assert terminal.end(END_SECONDS)[0] == 130
        id = next(word for word in terminal.text.split() if word.startswith("resp_"))
    kept = wait_until(
        lambda: service.http().get(f"/v1/responses/{id}"), wanted=lambda answer: answer.status_code == 200
    )
    assert kept.json()["output"][-1]["content"][0]["text"].startswith("1\n2\n3\n")


def test_what_a_terminal_would_obey_is_shown_by_its_name(service: ServiceProcess, tmp_path: Path) -> None:
    hostile = "My name is \033]0;owned\007\u202eadA."
    with at_a_terminal(tmp_path, "ask", "-R", hostile, url=service.url) as terminal:
        assert terminal.end(END_SECONDS)[0] == 0
        assert "<U+001B>]0;owned<U+0007><U+202E>adA" in terminal.text
        assert "\033]" not in terminal.raw
        assert "\u202e" not in terminal.raw


# --- a hostile text at a terminal ---


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = harmless(text)
    assert not [sign for sign in shown if unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
    assert harmless(shown) == shown


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"])))
def test_words_of_any_language_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text


def test_signs_have_names_and_an_excerpt_says_that_there_is_more() -> None:
    for text, shown in (("a\x1b[2Jb\n\t", "a<U+001B>[2Jb\n\t"), ("👩\u200d💻", "👩\u200d💻"), ("\ud800", "<U+D800>")):
        assert harmless(text) == shown
    assert excerpt("x" * 100_000).endswith("…")
    assert excerpt("a\n b") == "a b"
