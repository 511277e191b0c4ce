"""Many users of one key who say the same: nobody continues, moves or loses what another one made."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as walking
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from service.process import Settings
from tests.features.chats.test_histories import heard, post, remembering, said
from tests.support.lengths import lengths
from tests.support.service.inside import answer

SAYING: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "ada": ({"user": "ada"}, {}),
    "bob": ({"safety_identifier": "bob"}, {}),
    "cyd": ({}, {"x-openwebui-user-id": "cyd"}),
    "one whom nobody names": ({}, {}),
    "another whom nobody names": ({}, {}),
}
"""The body and the headers of each user's requests."""

WORDS = st.sampled_from(["Hi.", "And?"])
USERS = st.sampled_from([*SAYING])
PLACES = st.integers(0, 2)
WALKS = itertools.count()


@dataclass
class User:
    """One user as the model keeps it."""

    chats: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    """The histories that its client shows."""
    made: list[str] = field(default_factory=list[str])
    """The responses that it has, but for those that it deleted, and that went with them."""
    gone: set[str] = field(default_factory=set[str])


class Users(RuleBasedStateMachine):
    """Each does what a chat's user does; the service is asked over HTTP. Each walk has words of its own."""

    runner: asyncio.Runner
    http: httpx.AsyncClient

    def __init__(self) -> None:
        super().__init__()
        self.users = {name: User() for name in SAYING}
        self.walk = next(WALKS)

    def those_there(self, user: User) -> list[str]:
        """The responses of a user that can be retrieved."""
        return [id for id in user.made if self.runner.run(self.http.get(f"/v1/responses/{id}")).status_code == 200]

    def ask(self, name: str, history: list[dict[str, Any]]) -> None:
        """Ask for the next answer of a chat: what it continues is the user's own."""
        user, (body, headers) = self.users[name], SAYING[name]
        self.http.headers.update(headers)
        made = self.runner.run(post(self.http, [*history], **body))
        for header in headers:
            del self.http.headers[header]
        parent = made["previous_response_id"]
        assert parent is None or parent in user.made or parent in user.gone, f"{name} continues what another one made"
        user.made.append(made["id"])
        history.append(said("Hello."))

    @rule(name=USERS, place=PLACES, words=WORDS)
    def say(self, name: str, place: int, words: str) -> None:
        """Begin a chat, or go on in one."""
        chats = self.users[name].chats
        if place >= len(chats):
            chats.append([])
        chat = chats[min(place, len(chats) - 1)]
        chat.append(heard(f"{words} ({self.walk})"))
        self.ask(name, chat)

    @rule(name=USERS, place=PLACES, turn=PLACES, words=WORDS)
    def edit(self, name: str, place: int, turn: int, words: str) -> None:
        """Say something else in place of what was said, or the same again, and lose all behind it."""
        if chats := self.users[name].chats:
            chat = chats[place % len(chats)]
            chat[turn * 2 % len(chat) :] = [heard(f"{words} ({self.walk})")]
            self.ask(name, chat)

    @rule(name=USERS, place=PLACES, query=st.sampled_from(["", "?erase=true", "?tree=true"]), seldom=st.integers(0, 3))
    def lose(self, name: str, place: int, query: str, seldom: int) -> None:
        """Delete a response. One whom nobody names begins anew then: its words alone may be another one's now."""
        user = self.users[name]
        if not user.made or seldom:
            return
        id = user.made[place % len(user.made)]
        assert self.runner.run(self.http.delete(f"/v1/responses/{id}{query}")).status_code == 200
        there = self.those_there(user)
        user.gone |= {*user.made} - {*there}
        user.made = there
        if not any(SAYING[name]):
            user.chats = []
        for other, each in self.users.items():
            assert self.those_there(each) == each.made, f"{other} has lost something to {name}"


@pytest.mark.parametrize("walks", lengths(20, 500))
def test_nobody_continues_moves_or_loses_what_another_one_made(settings: Settings, walks: int) -> None:
    walks_alone = walking(
        max_examples=walks,
        stateful_step_count=30,
        deadline=None,
        phases={Phase.generate},  # to shrink a walk takes minutes
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        _, _, http = runner.run(stack.enter_async_context(remembering(settings, answer("Hello."))))
        try:
            kind = type("Walk", (Users,), {"runner": runner, "http": http})
            run_state_machine_as_test(kind, settings=walks_alone)
        finally:
            runner.run(stack.aclose())
