"""Erasing a person by the command: it says of each conversation why it stays, and of shards that nobody can read."""

import json
from typing import Any, cast

import pytest

from service.features.client import printing
from service.features.client.erasing import erase
from service.features.client.errors import RefusedByService
from service.features.client.service import RemoteService

REASONS = {"a": (409, "A response is under way."), "b": (403, "The key may not."), "c": (404, "Unknown.")}


class Refusing:
    """A service whose conversations stay for these reasons, and that can't read some shards."""

    def __init__(self, unread: list[str]) -> None:
        self._unread = unread

    def call(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
        if method == "DELETE":
            raise RefusedByService(*REASONS[path[-1]])
        trees = [{"id": id, "title": "", "newest": {"id": id, "kind": "response"}} for id in REASONS]
        return {"data": trees, "after": None, "archive_away": False, "unread_shards": self._unread}


@pytest.mark.parametrize("unread", [[], ["0a", "ff"]])
def test_an_erasure_says_why_each_conversation_stays_and_what_can_not_be_read(
    capsys: pytest.CaptureFixture[str], unread: list[str]
) -> None:
    service = cast(RemoteService, Refusing(unread))
    told = erase.__wrapped__(service, metadata=["user=x"], yes=True, as_json=True)  # pyright: ignore[reportFunctionMemberAccess]
    found = capsys.readouterr()
    assert told == 1
    assert json.loads(found.out) == {"found": 3, "erased": 1, "left": ["a", "b"], "unread_shards": unread}
    assert "a stays: A response is under way. (HTTP 409)\nb stays: The key may not. (HTTP 403)\n" in found.err
    assert ("nothing of 2 shards of the archive, which can't be read: 0a ff" in found.err) == bool(unread)


def test_words_that_begin_as_those_looked_for_are_marked_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Zürich is no azur, and (zurichs)\033[2J"
    printing.out(text, mark="zur")
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    printing.out(text, mark="zur")
    assert capsys.readouterr().out == ("\033[1mZürich\033[0m is no azur, and (\033[1mzurichs\033[0m)<U+001B>[2J\n")
