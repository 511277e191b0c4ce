"""A run that is called: no engine, no task and no loop are needed to see what comes of each chunk."""

import ast
from pathlib import Path

import pytest

from service.engine.port import Chunk, EngineUnavailable, Finish, Generation, Sampling
from service.harmony import tokens
from service.responses import run as module
from service.responses.output.machine import Ending
from service.responses.output.next_step import Ask, Call, End, GiveFeedback
from service.responses.output.rules import Rules
from service.responses.run import Run
from tests.responses.test_hosted_calls import CALL, RULES, THREE
from tests.responses.test_next_step import STRANGER
from tests.support.responses import samples
from tests.support.responses.samples import harmony

ASKED = Generation("resp_1", [200006, 1], Sampling(500, stop_ids=tokens.ENDS))
ANSWER = harmony("<|channel|>final<|message|>Hello")


def begun(rules: Rules = samples.RULES) -> Run:
    """A run whose first generation is under way."""
    machine = samples.machine(rules)
    machine.begin()
    run = Run(ASKED, machine)
    run.go_on()
    run.ask()
    return run


def test_it_knows_no_clock_no_log_and_no_context() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    assert not imported & {"asyncio", "contextvars", "logging", "time", "service.logs", "service.spans"}


def test_a_word_leaves_the_next_step_open_and_the_finish_says_it() -> None:
    run = begun()
    assert run.take(Chunk(ANSWER)) is not None
    assert run.next is None
    taken = run.take(Chunk([tokens.RETURN], Finish.STOP))
    assert taken is not None
    assert (taken.tokens, run.next) == ([tokens.RETURN], End(Ending.STOP))


def test_behind_the_next_step_a_chunk_tells_the_cached_tokens_alone() -> None:
    run = begun()
    run.stop()
    assert run.next == End(Ending.ABORT)
    sampled = run.machine.stretches.sampled
    assert run.take(Chunk(ANSWER, cached_tokens=48)) is None
    assert (run.machine.stretches.sampled, run.machine.stretches.cached) == (sampled, 48)


def test_feedback_is_given_once_the_generation_was_left() -> None:
    run = begun()
    run.take(Chunk(harmony(STRANGER)))
    assert (run.next, run.wants_cached) == (GiveFeedback(), True)
    run.take(Chunk([], cached_tokens=16))
    run.over()
    assert isinstance(run.next, Ask)
    assert run.machine.stretches.cached == [16, None]


def test_a_stop_amid_feedback_ends_it_behind_that() -> None:
    run = begun()
    run.take(Chunk(harmony(STRANGER)))
    assert run.stop(Ending.TIMEOUT)
    run.over()
    assert (run.next, run.machine.stretches.feedbacks) == (End(Ending.TIMEOUT), 1)


def test_a_stop_behind_the_end_changes_nothing() -> None:
    run = begun()
    run.take(Chunk([*ANSWER, tokens.RETURN], Finish.STOP))
    assert not run.stop()
    assert (run.stopped, run.ending) == (None, Ending.STOP)


def test_a_generation_that_ends_without_a_word_has_failed() -> None:
    run = begun()
    run.take(Chunk(ANSWER))
    run.over()
    assert run.next == End(Ending.ERROR)


def test_an_engine_that_fails_behind_the_last_chunk_has_not_failed() -> None:
    run = begun()
    run.take(Chunk([*ANSWER, tokens.RETURN], Finish.STOP))
    assert not run.fail(EngineUnavailable("the connection broke"))
    assert (run.failure, run.ending) == (None, Ending.STOP)


def test_a_call_is_next_behind_its_mark_and_its_outcome_leads_on() -> None:
    run = begun(RULES)
    run.take(Chunk(harmony(CALL)))
    run.over()
    assert run.next == Call()
    taken = run.take_outcome(THREE)
    assert (taken.outcome, type(run.next)) == (THREE, Ask)
    assert run.ask().id == "resp_1-1"


@pytest.mark.parametrize("steered", [False, True])
def test_a_steer_ends_an_answer_where_it_stands(steered: bool) -> None:
    run = begun()
    run.take(Chunk(ANSWER))
    assert (run.steer() if steered else False) is steered
    assert (run.stopped, run.next) == ((Ending.STEERED, End(Ending.STEERED)) if steered else (None, None))


def test_ids_behind_a_boundary_are_not_among_those_that_were_taken() -> None:
    run = begun()
    run.take(Chunk(harmony("<|channel|>analysis<|message|>Hm")))
    assert not run.steer()
    rest = harmony("m.<|end|>")
    taken = run.take(Chunk([*rest, *ANSWER]))
    assert taken is not None
    assert (taken.tokens, run.next) == (rest, End(Ending.STEERED))
