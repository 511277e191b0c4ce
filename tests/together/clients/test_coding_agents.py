"""Agents at a command line, over six turns with a tool each: one is killed amid its tool, and the next goes on."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.clients.agents import KINDS, Agent
from tests.support.engine.obedient import obedient, shown
from tests.support.service.beside import ServiceBeside
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

SECONDS = 120


SLOW = {"qwen": pytest.mark.full}
"""It takes four seconds to start, each of six times."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in KINDS])
def test_six_turns_with_tools_are_one_conversation_though_one_was_killed_amid_its_tool(
    redis_url: str, tmp_path: Path, name: str
) -> None:
    engine = obedient()
    service = ServiceBeside(tmp_path / "service", redis_url, engine, chats="remember")
    agent = Agent(KINDS[name], service.url, tmp_path / "home")
    try:
        for turn in (1, 2, 3):
            go_on(agent, turn)
        process = agent.start(agent.wish("[ -e begun ] || { echo $$ > begun; sleep 300; }"))
        wait_until(lambda: (agent.work / "begun").exists() or process.poll() is not None, SECONDS, "no tool is run")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        for turn in (5, 6):  # Qwen's joins the fourth's text and the fifth's, so that both are done
            go_on(agent, turn)
    finally:
        service.stop()
    last = next(each for each in map(shown, reversed(engine.generations)) if "echo word-6" in each)
    assert [turn for turn in range(1, 7) if f"echo word-{turn}" in last] == [1, 2, 3, 5, 6]
    # whether the fourth is known depends on what its agent had written when it was killed


def go_on(agent: Agent, turn: int) -> None:
    """One turn, in which a tool runs and its output comes back."""
    said = agent.turn(agent.wish(f"echo word-{turn}-$((6 * 7)) | tee -a words"))
    assert f"word-{turn}-42" in (agent.work / "words").read_text()
    assert f"word-{turn}-42" in said or "Output: (empty)" in said  # Qwen's loses what a quick command prints
