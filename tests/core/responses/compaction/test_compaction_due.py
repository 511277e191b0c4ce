"""When a conversation is compacted before it is answered, and what of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.harmony import tokens
from service.harmony.render import message
from service.responses.output import compaction as compacted
from service.responses.output import sealed
from service.responses.prompt.compaction import INSTRUCTION, PARTLY, newest_input
from store.turn import StoredMessage
from tests.core.responses.compaction.test_compaction_turns import (
    ANSWER,
    AT_ONCE,
    CALL,
    NEXT,
    OUTPUT,
    USER,
    outgrown,
    texts,
)
from tests.support.responses.requests import Json, prompt


def test_what_is_older_than_the_newest_input_is_compacted() -> None:
    made = outgrown(USER, ANSWER, NEXT)
    assert made.rules.after_compaction is not None
    text = tokens.decode(made.tokens)

    assert made.rules.kept_messages == (made.messages[0],)
    assert made.rules.after_compaction.newest == (made.messages[2],)
    assert "heron" in text
    assert text.index("heron") < text.index(INSTRUCTION)
    assert "Where does she lie?" not in text


@pytest.mark.parametrize(
    "managing",
    [None, [], [{"type": "compaction"}], [{"type": "compaction", "compact_threshold": None}]],
    ids=["null", "nothing", "no threshold", "a threshold of null"],
)
def test_a_short_conversation_is_answered_as_it_is(managing: Any) -> None:
    assert outgrown(USER, ANSWER, NEXT, context_management=managing) == prompt(input=[USER, ANSWER, NEXT])


def test_a_threshold_is_crossed_by_one_token() -> None:
    length = len(prompt(input=[USER, ANSWER, NEXT]).tokens)
    at, below = (
        outgrown(USER, ANSWER, NEXT, context_management=[{"type": "compaction", "compact_threshold": threshold}])
        for threshold in (length, length - 1)
    )

    assert (at.rules.after_compaction is None, below.rules.after_compaction is None) == (True, False)


def test_without_a_threshold_three_quarters_of_the_context_are_one() -> None:
    long = {"role": "assistant", "content": "word " * 3000}
    for context, due in ((4200, False), (3900, True)):
        made = prompt((), context, input=[USER, long, NEXT], context_management=[{"type": "compaction"}])
        assert (made.rules.after_compaction is not None) == due


@pytest.mark.parametrize("items", [[NEXT], [USER, NEXT]])
def test_there_is_nothing_to_compact_before_the_model_has_spoken(items: list[Json]) -> None:
    assert outgrown(*items).rules.after_compaction is None


def managed(*lengths: int, context: int, due: int) -> bool:
    """Whether a conversation of user, model and user, who say so many words, is compacted first."""
    items = [{**each, "content": "word " * words} for each, words in zip((USER, ANSWER, NEXT), lengths, strict=True)]
    managing = [{"type": "compaction", "compact_threshold": due}]
    made = prompt((), context, input=items, context_management=managing, max_output_tokens=16)
    return made.rules.after_compaction is not None


def test_what_is_not_worth_a_summary_is_compacted_only_where_it_no_longer_fits() -> None:
    assert managed(400, 2, 2, context=4000, due=450)
    assert not managed(2, 2, 400, context=4000, due=450)
    assert managed(2, 150, 1300, context=1500, due=10_000)


def test_where_the_newest_input_is_too_long_nothing_is_compacted() -> None:
    items = [USER, ANSWER, {**NEXT, "content": "word " * 1200}]

    assert prompt((), 1500, input=items, context_management=AT_ONCE).rules.after_compaction is None


def test_an_output_stays_with_its_call_and_the_thought_before_it() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "I look."}]}
    made = outgrown(USER, ANSWER, NEXT, thought, CALL, OUTPUT)
    assert made.rules.after_compaction is not None

    assert made.rules.after_compaction.newest == tuple(made.messages[3:])
    assert made.rules.kept_messages == (made.messages[0], made.messages[2])


def test_where_the_user_s_own_words_are_too_long_the_oldest_are_left_to_the_summary() -> None:
    items = [{**USER, "content": "word " * 1000}, ANSWER, USER, ANSWER, NEXT]
    made = prompt((), 1500, input=items, context_management=AT_ONCE)

    assert made.rules.after_compaction is not None
    assert made.rules.kept_messages == (made.messages[2],)
    assert PARTLY in tokens.decode(made.tokens)


def test_however_much_the_user_says_it_is_not_compacted_at_each_turn_nor_for_ever_forgotten() -> None:
    threshold = [{"type": "compaction", "compact_threshold": 600}]
    chain: list[StoredMessage] = []
    compactions: list[bool] = []
    for number in range(40):
        said = {"role": "user", "content": f"{number} " + "word " * 100}
        made = prompt(chain, 1500, input=[said], context_management=threshold, max_output_tokens=50)
        chain += made.messages
        compactions.append(made.rules.after_compaction is not None)
        if made.rules.after_compaction is not None:
            done = sealed.SealedCompaction("A summary.", made.rules.kept_messages, made.rules.after_compaction.newest)
            chain += compacted.compaction_messages(done, limit=1000)
        chain.append(message("Short.", "assistant", channel="final"))

    assert compactions[10:].count(True) <= len(compactions[10:]) // 2
    assert any(compactions[-4:])
    assert " ".join(texts(made.shown)).count("38 word") == 1


ROLES = st.lists(st.sampled_from(["user", "final", "analysis", "call", "output", "unnamed", "answered"]), max_size=14)


@given(kinds=ROLES, last=st.sampled_from(["user", "output", "answered", "final"]))
def test_no_call_is_ever_parted_from_its_output(kinds: list[str], last: str) -> None:
    messages: list[StoredMessage] = []
    waiting: list[int] = []
    pairs: list[tuple[int, int]] = []
    for at, kind in enumerate([*kinds, last]):
        if kind == "user":
            messages.append(message("Hi.", "user"))
        elif kind in ("final", "analysis"):
            messages.append(message("Hi.", "assistant", channel=kind))
        elif kind in ("call", "unnamed"):
            call = f"call_{at}" if kind == "call" else None
            messages.append(message("{}", "assistant", channel="commentary", recipient="functions.f", call_id=call))
            waiting.append(at)
        else:
            named = kind == "output"
            own = next((place for place in waiting if (messages[place].call_id is not None) == named), None)
            if own is None:
                messages.append(message("Hi.", "user"))
                continue
            waiting.remove(own)
            pairs.append((own, at))
            call = messages[own].call_id
            messages.append(message("1", "tool", name="functions.f", channel="commentary", call_id=call))
    place = newest_input(messages)

    assert all((call < place) == (output < place) for call, output in pairs)
    assert 0 <= place < len(messages)
    assert place == 0 or any(message.role == "assistant" for message in messages[:place])
