"""The events of Chat Completions to chunks: counts, ends, calls in the ways of several servers, and faults."""

from typing import Any

import pytest

from service.engine.port import Chunk, EngineError, EngineRefused, Finish
from service.features.chat_servers.answer import MOST_CALLS, ChatAnswer
from service.features.models.markup.by_server import ENDED, ByServer
from service.harmony.segments import Closed, Opened
from tests.support.chat.standin import answer, delta, spoken, usage
from tests.support.engine.standin_wire import DONE, error_event, event
from tests.support.markup.writing import Turn

TURN = Turn("They ask for two.", "I look.", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})])


def reading(*, logprobs: int | None = None, max_tokens: int = 1000, tells_cached: bool = True) -> ChatAnswer:
    return ChatAnswer("vLLM", max_tokens=max_tokens, logprobs=logprobs, tells_cached=tells_cached)


def chunks_of(answer: ChatAnswer, *data: bytes) -> list[Chunk]:
    """All chunks of a stream that comes in these pieces, up to its end."""
    return [*(chunk for each in data for chunk in answer.feed(each)), answer.end()]


def said_in(chunks: list[Chunk]) -> list[tuple[str, str]]:
    """The channel or the name of each segment, and its text."""
    parser, found = ByServer({}), list[tuple[str, str]]()
    for segment in [each for chunk in chunks for each in parser.feed(chunk.tokens, chunk.text)] + parser.end():
        if isinstance(segment, Opened):
            found.append((segment.header.recipient or segment.header.channel or "", ""))
        elif not isinstance(segment, Closed):
            found[-1] = (found[-1][0], found[-1][1] + segment)
    return found


SAID = [
    ("analysis", "They ask for two."),
    ("final", "I look."),
    ("functions.get_weather", '{"city": "Paris"}'),
    ("functions.get_weather", '{"city": "Rome"}'),
]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_whole_turn_is_read_and_counted_however_it_is_cut(size: int, ids: bool) -> None:
    stream = b"".join(answer(TURN, ids=ids))
    chunks = chunks_of(reading(), *(stream[at : at + size] for at in range(0, len(stream), size)))
    assert said_in(chunks) == SAID
    assert sum(len(chunk.tokens) for chunk in chunks) == len(spoken(TURN))
    last = chunks[-1]
    assert (last.finish, last.prompt_tokens, last.cached_tokens, last.tokens[-1]) == (Finish.STOP, 40, 16, ENDED)


def call(index: int | None, id: str | None, name: str | None, arguments: str | None) -> bytes:
    return delta({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]})


X = '{"x": 1}'
Piece = tuple[int | None, str | None, str | None, str | None]
WAYS: dict[str, list[Piece]] = {
    "whole calls without a number": [(None, "a", "one", "{}"), (None, "b", "two", X)],
    "the same number for all": [(0, "a", "one", "{}"), (0, "b", "two", X)],
    "the same number and no id for all": [(0, "", "one", "{}"), (0, "", "two", X)],
    "neither a number nor an id": [(None, None, "one", "{}"), (None, None, "two", X)],
    "the name again with every piece": [
        (0, "a", "one", "{"),
        (0, "a", "one", "}"),
        (0, "a", "one", ""),
        (1, "b", "two", X),
    ],
    "another id with every piece": [
        (0, "a", "one", "{"),
        (0, "b", None, "}"),
        (1, "c", "two", X[:5]),
        (1, "d", None, X[5:]),
    ],
    "the name behind the arguments": [(0, "a", None, "{}"), (0, None, "one", None), (1, "b", "two", X)],
    "in turns": [(0, "a", "one", ""), (1, "b", "two", X[:5]), (0, None, None, "{}"), (1, None, None, X[5:])],
}


@pytest.mark.parametrize("calls", WAYS.values(), ids=WAYS)
def test_calls_are_read_in_the_ways_of_several_servers(calls: list[Piece]) -> None:
    chunks = chunks_of(reading(), *(call(*each) for each in calls), delta({}, "tool_calls"), DONE)
    assert said_in(chunks) == [("functions.one", "{}"), ("functions.two", X)]


EMPTY, STOP = call(0, "a", "one", ""), delta({}, "stop")
BOTH = delta({"reasoning_content": "So.", "content": "Yes"}, ids=1)
SPOKEN: dict[str, tuple[list[bytes], list[tuple[str, str]], int | None]] = {
    "neither a done nor a usage": ([delta({"content": "Hi"}), STOP], [("final", "Hi")], 2),
    "a delta of two parts": (
        [delta({"reasoning_content": "Hm. "}, ids=1), BOTH, delta({}, "stop", ids=1), usage(3)],
        [("analysis", "Hm. So."), ("final", "Yes")],
        3,
    ),
    "a refusal": (
        [delta({"content": None, "refusal": "I can't "}), delta({"refusal": "do that."}), STOP],
        [("final", "I can't do that.")],
        None,
    ),
    "no arguments and words behind": (
        [EMPTY, delta({"content": "\u00a0"}), STOP],
        [("functions.one", "{}"), ("final", "\u00a0")],
        None,
    ),
    "nothing": ([delta({"role": "assistant", "content": None}), STOP], [("final", "")], 1),
    "a count beyond belief": (
        [delta({"content": "Hi"}), STOP, usage((1 << 31) - 1)],
        [("final", "Hi")],
        1000,
    ),
}


@pytest.mark.parametrize(("events", "said", "count"), SPOKEN.values(), ids=SPOKEN)
def test_what_is_said_is_read_and_counted(events: list[bytes], said: list[tuple[str, str]], count: int | None) -> None:
    chunks = chunks_of(reading(), *events)
    assert said_in(chunks) == said
    assert count is None or sum(len(chunk.tokens) for chunk in chunks) == count


@pytest.mark.parametrize("text", [None, "\u00a0"])
def test_arguments_without_a_name_are_no_answer(text: str | None) -> None:
    broken = [call(0, "a", "one", '{"x":'), delta({"content": text})] if text else []
    with pytest.raises(EngineError, match="without a name"):
        chunks_of(reading(), *broken, call(0, None if text else "a", None, "1}"), STOP)


def test_no_more_than_so_many_calls_wait() -> None:
    many = b"".join(call(index, None, "one", "{") for index in range(MOST_CALLS + 1))
    with pytest.raises(EngineError, match="calls at once"):
        list(reading(max_tokens=100_000).feed(many))


def told(**said: Any) -> bytes:
    """An event with nothing but a usage."""
    return event({"choices": [], "usage": said})


def test_no_more_tokens_count_as_cached_than_the_prompt_has() -> None:
    usage_event = told(prompt_tokens=3, completion_tokens=2, prompt_tokens_details={"cached_tokens": 9})
    last = chunks_of(reading(), delta({"content": "Hi"}), delta({}, "stop"), usage_event)[-1]
    assert (last.prompt_tokens, last.cached_tokens) == (3, 3)


ODD: list[Any] = [None, -1, 2.5, 10**30, "7", {}]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_count_is_not_told_and_what_came_is_counted(odd: Any) -> None:
    said = (delta({"content": "Hi"}), delta({"content": "!"}), delta({}, "stop"))
    for usage_event in (
        told(prompt_tokens=odd, completion_tokens=odd, prompt_tokens_details={"cached_tokens": odd}),
        told(prompt_tokens=odd, completion_tokens=odd, prompt_tokens_details=odd),
        event({"choices": None, "usage": odd if odd != {} else {"prompt_tokens": odd}}),
        event({"usage": [odd]}),
        b'data: {"usage":{"prompt_tokens":1e999,"completion_tokens":' + b"9" * 5000 + b"}}\n\n",
    ):
        chunks = chunks_of(reading(), *said, usage_event)
        assert said_in(chunks) == [("final", "Hi!")]
        last = chunks[-1]
        assert (sum(len(chunk.tokens) for chunk in chunks), last.prompt_tokens, last.cached_tokens) == (3, None, None)


def test_what_is_null_says_nothing() -> None:
    head = {"id": "c", "object": "chat.completion.chunk"}
    nothing = [
        event({**head, "choices": [{"index": 0, "delta": None, "finish_reason": None}]}),
        event({**head, "choices": [{"index": None, "delta": {"content": None, "tool_calls": None, "refusal": None}}]}),
        event({**head, "choices": [{"delta": {"tool_calls": [None]}, "logprobs": {"content": None}}]}),
        event({**head, "choices": [None], "usage": None}),
        event({**head, "choices": None}),
    ]
    called = event({**head, "choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": None}]}}]})
    end = event({**head, "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]})
    assert said_in(chunks_of(reading(), *nothing, delta({"content": "Hi"}), *nothing, end)) == [("final", "Hi")]
    one = call(0, "a", "one", "{}")
    assert said_in(chunks_of(reading(), *nothing, called, *nothing, one, end)) == [("functions.one", "{}")]


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("told_of", [None, 3, 4])
def test_an_end_exactly_where_it_has_to_be_is_one_of_the_tokens(finish: str, told_of: int | None) -> None:
    said = [delta({"content": f"{number} "}) for number in range(3)]
    counted = [] if told_of is None else [usage(told_of)]
    chunks = chunks_of(reading(max_tokens=3), *said, delta({}, finish), *counted)
    assert said_in(chunks) == [("final", "0 1 2 ")]
    assert sum(len(chunk.tokens) for chunk in chunks) == 3
    assert chunks[-1].finish == finish


def test_without_ids_an_answer_ends_where_as_much_was_said_as_may_be() -> None:
    answer = reading(max_tokens=3)
    chunks = list(answer.feed(b"".join(delta({"content": f"{number} "}) for number in range(9))))
    assert answer.over
    chunks.append(answer.end())
    assert chunks[-1].finish is Finish.LENGTH
    assert said_in(chunks) == [("final", "0 1 2 ")]
    assert sum(len(chunk.tokens) for chunk in chunks) == 3


def test_more_text_than_tokens_can_have_is_a_fault() -> None:
    for said in (delta({"content": "x" * 2000}), call(0, "a", "f", "{") + call(1, "b", "g", "x" * 2000)):
        with pytest.raises(EngineError, match="more text than 2 tokens"):
            list(reading(max_tokens=2).feed(said))


def test_log_probabilities_come_with_their_tokens_and_none_where_none_are_told() -> None:
    def likely(text: str) -> dict[str, Any]:
        top = [{"token": text, "logprob": -0.5, "bytes": None}, {"token": "No", "logprob": -3.0, "bytes": None}]
        return {"content": [{"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": top}]}

    said = delta({"content": "Yes"}, ids=1, logprobs=likely("Yes")) + delta({"content": "."}, ids=1)
    chunks = chunks_of(reading(logprobs=1), said, delta({}, "stop", ids=1), usage(3))
    assert all(len(chunk.logprobs or ()) == len(chunk.tokens) for chunk in chunks)
    known = [each for chunk in chunks for each in chunk.logprobs or ()]
    assert [(each.logprob, each.texts) for each in known[:2]] == [(-0.5, ("Yes", "Yes")), (-9999.0, ("",))]


def test_what_was_cached_is_told_to_nobody_where_several_share_it() -> None:
    assert chunks_of(reading(tells_cached=False), *answer(TURN))[-1].cached_tokens is None


FAULTS: dict[str, tuple[bytes, type[EngineError], str]] = {
    "its own": (error_event(500, "CUDA out of memory"), EngineError, "failed with status 500"),
    "a refusal": (error_event(400, "too long"), EngineRefused, "too long"),
    "what it does not know": (error_event(404, "no such model"), EngineRefused, "does not serve this request"),
    "what it forbids": (error_event(403, "your key is sk-1"), EngineRefused, "forbids it"),
    "an error by its field": (b'error: {"code":500,"message":"oops"}\n', EngineError, "failed with status 500"),
    "another type": (event({"choices": [{"delta": {"content": 5}}]}), EngineError, "unreadable event"),
    "several answers": (event({"choices": [{"index": 1, "delta": {"content": "x"}}]}), EngineError, "several"),
    "another finish": (delta({}, "content_filter"), EngineError, "content_filter"),
    "a name that is none": (call(0, "a", "x " * 100, ""), EngineError, "an impossible name"),
}


@pytest.mark.parametrize(("data", "error", "match"), FAULTS.values(), ids=FAULTS)
def test_a_fault_comes_behind_what_was_said_before_it(data: bytes, error: type[EngineError], match: str) -> None:
    chunks, got = reading().feed(delta({"content": "Hi"}) + data), list[Chunk]()
    got.append(next(chunks))
    with pytest.raises(error, match=match):
        got += chunks
    assert [chunk.text for chunk in got] == ["\x1eaHi"]
