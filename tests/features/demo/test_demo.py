"""The demo engine: the conformance suite, and what it says to whom. Calls are in test_demo_constrained.py."""

import asyncio
import time
from array import array
from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import Generation, ModelCard, Sampling
from service.features.demo.sampling import sampled_answer
from service.harmony.tokens import RETURN, STOPS
from tests.support.engine.conformance import Ability
from tests.support.engine.demo import WatchedDemo, answer
from tests.support.engine.demo_prompts import DemoPrompts
from tests.support.engine.generating import generated
from tests.support.engine.prompts import WEATHER, final, parsed, prompt, user
from tests.support.oracles.harmony import Oracle

MODEL = ModelCard("harmonium-demo", 1_700_000_000, 131_072)
LOOSE = 10
"""How many times slower than measured a step may be before a test of speed fails."""


class TestConformance(DemoPrompts):
    lacks: ClassVar[dict[Ability, str]] = {"known limits": "it reads whatever it gets, of any length"}

    @pytest.fixture
    async def engine(self) -> AsyncGenerator[WatchedDemo, None]:
        engine = WatchedDemo(MODEL)
        await engine.start()
        yield engine
        await engine.close()


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [("Please count from 1 to 30.", 1, 30), ("counting up to 1,000", 1, 1000), ("count from 3 to 1", 3, 1)],
)
def test_it_counts_one_number_a_line(words: str, first: int, last: int) -> None:
    step = 1 if last >= first else -1
    assert answer(prompt(user(words))).final.split("\n") == [str(n) for n in range(first, last + step, step)]


@pytest.mark.parametrize("asking", ["a very long story, at least {} words.", "a {}-word essay"])
def test_a_story_has_the_words_that_were_asked_for(asking: str) -> None:
    story = answer(prompt(user(f"Write {asking.format(2000)}"))).final
    assert 2000 <= len(story.split()) < 2020
    sentences = [sentence.strip() for sentence in story.split(".")]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize(
    ("told", "asked", "said"),
    [
        ("My name is Ada.", "what is my name?", "Your name is Ada."),
        ("Remember: the secret word is marmalade", "What is the secret word?", "The secret word is marmalade."),
        ("my cat is Tom and my dog is Rex", "Do you remember my dog?", "Your dog is Rex."),
    ],
)
def test_it_recalls_what_was_told(told: str, asked: str, said: str) -> None:
    assert answer(prompt(user(told), final("OK."), user("hm"), final("Yes?"), user(asked))).final == said


@given(
    words=st.lists(
        st.one_of(
            st.text(st.characters(codec="utf-8"), max_size=80),
            st.sampled_from(["count to 9", "my x is y", "what is my x?"]),
        )
    ),
    effort=st.sampled_from(["low", "medium", "high"]),
)
def test_every_answer_is_well_formed_harmony(oracle: Oracle, words: list[str], effort: str) -> None:
    said = answer(prompt(*(user(text) for text in words), effort=effort))
    messages = parsed(oracle, said.tokens)
    assert said.tokens[-1] == RETURN
    assert [one.get("channel") for one in messages] == ["analysis", "final"]
    assert messages[-1]["content"] == [{"type": "text", "text": said.final}]


@given(st.lists(st.integers(0, 201_087), max_size=60))
def test_any_ids_at_all_get_some_answer(ids: list[int]) -> None:
    assert [token for piece in sampled_answer(ids) for token in piece][-1] == RETURN


async def test_a_paced_stream_keeps_its_pace() -> None:
    engine, loop = WatchedDemo(MODEL, tokens_per_second=400), asyncio.get_running_loop()
    begun = loop.time()
    request = Generation("test", prompt(user("count to 100")), Sampling(80, 0, stop_ids=STOPS))
    times = [(loop.time(), len(chunk.tokens)) async for chunk in generated(engine, request)]
    assert times[-1][0] - begun >= 80 / 400 - 0.01
    assert times[-1][0] - begun < LOOSE * 80 / 400
    assert all(before <= after for (before, _), (after, _) in pairwise(times))


@pytest.mark.parametrize("words", ["my " * 100_000, "the a a a a " * 30_000, '"' * 300_000])
def test_hostile_words_cost_no_long_step(words: str) -> None:
    longest = 0.0
    head = {"developer": WEATHER + "\n\n# Response Formats\n\n## a\n\n" + '{"type":"string"}'}
    pieces = sampled_answer(array("I", prompt(user(words), user(words + " what is my name in Paris weather?"), **head)))
    before = time.thread_time()
    for _ in pieces:
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    assert longest < LOOSE * 0.002
