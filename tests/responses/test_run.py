"""A run that is called: no engine, no task and no loop are needed to see what comes of each chunk."""

from service.engine.port import Chunk, EngineUnavailable, Finish, Generation, Sampling
from service.harmony import tokens
from service.responses.output.machine import Ending
from service.responses.output.next_step import Ask, End, GiveFeedback
from service.responses.output.rules import Rules
from service.responses.run import Run
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


def test_an_engine_that_fails_behind_the_last_chunk_has_not_failed() -> None:
    run = begun()
    run.take(Chunk([*ANSWER, tokens.RETURN], Finish.STOP))
    assert not run.fail(EngineUnavailable("the connection broke"))
    assert (run.failure, run.ending) == (None, Ending.STOP)
