"""The vocabulary: nothing a user writes becomes a special id, and slicing a long text changes no id of it."""

import random
import time
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.harmony import tokens
from service.harmony.tokens import RunTooLong, TooManyTokens, decode, encode, encode_steps, pack, unpack
from tests.support.oracles.harmony import Oracle
from tests.support.steps import timed_steps

SPECIALS = {
    "<|return|>": tokens.RETURN,
    "<|constrain|>": tokens.CONSTRAIN,
    "<|channel|>": tokens.CHANNEL,
    "<|start|>": tokens.START,
    "<|end|>": tokens.END,
    "<|message|>": tokens.MESSAGE,
    "<|call|>": tokens.CALL,
}

STEP_SECONDS = 0.25
"""What a step may take on a busy machine. Alone it takes 10 ms; where a text has no place to cut, 60 ms."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
scripts = ["word", "中文", "한", "ไทย", "عربي", "हिन्दी", "İ", "ǅ", "e\u0301", "\u0301", "🙂", "\u200d", "12345", "½"]
spaces = [" ", "  ", "\n", "\r\n", "\u00a0", "\x1c"]
marks = ["don't", "'s", "'", "_x", ", ", ": ", ")", '"', "。"]
pieces = st.sampled_from([*scripts, *spaces, *marks])


@given(text=texts)
@example(text="".join(SPECIALS))
def test_text_encodes_as_in_openai_harmony_and_decodes_to_itself(oracle: Oracle, text: str) -> None:
    ids = encode(text)

    assert ids == oracle.encoding.encode(text, disallowed_special=())
    assert decode(ids) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00\ud83d"])
def test_half_a_surrogate_pair_is_a_replacement_character(text: str) -> None:
    assert encode(text) == encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    assert "\ufffd" in decode(encode(text))


def test_special_ids_are_those_of_openai_harmony(oracle: Oracle) -> None:
    for text, special in SPECIALS.items():
        assert oracle.encoding.encode(text, allowed_special="all") == [special]
    for id in range(tokens.FIRST_SPECIAL, tokens.LAST_LEGAL + 1):
        assert tokens.mark_of(id) == oracle.encoding.decode([id])
    assert [tokens.mark_of(id) for id in (0, tokens.LAST_ORDINARY, tokens.LAST_LEGAL + 1)] == [None] * 3
    assert set(tokens.STOPS) == set(oracle.encoding.stop_tokens_for_assistant_actions())


def test_the_byte_table_is_that_of_openai_harmony(oracle: Oracle) -> None:
    table = tokens.byte_table()
    sample = [*range(0, tokens.FIRST_SPECIAL, 97), tokens.LAST_ORDINARY]

    assert [table[rank] for rank in sample] == [oracle.bytes_of(rank) for rank in sample]
    assert not any(table[id] for id in range(tokens.FIRST_SPECIAL, tokens.LAST_LEGAL + 1))
    assert tokens.vocabulary() == [table[id] for id in range(tokens.FIRST_SPECIAL)]


def test_a_vocabulary_in_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_lines", lambda: b"IQ== 0\nIg== 2\n")
    with pytest.raises(ValueError, match="in another form"):
        tokens.byte_table.__wrapped__()


@given(ids=st.lists(st.integers(0, 2**32 - 1)))
def test_packed_ids_unpack_to_themselves(ids: list[int]) -> None:
    assert unpack(pack(ids)).tolist() == ids
    assert pack(ids) == b"".join(id.to_bytes(4, "little") for id in ids)


@given(text=st.lists(pieces, max_size=80).map("".join), window=st.integers(4, 40))
def test_slices_give_the_ids_of_the_whole(text: str, window: int) -> None:
    with patch.multiple(tokens, SLICE_CHARS=window, BOUNDARY_SEARCH_CHARS=window // 2):
        ids, _ = timed_steps(encode_steps(text, limit=len(text.encode())))

    assert list(ids) == encode(text)


def drawn(letters: str, count: int) -> str:
    """`count` random letters, the same ones each time."""
    return "".join(random.Random(7).choices(letters, k=count))


HANZI = "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里"

LONG_TEXTS = {
    "prose": "the quick brown fox jumps over the lazy dog. " * 15_000,
    "minified JSON": '{"name":"x","list":[1,2,3]},' * 15_000,
    "Chinese prose": drawn(HANZI + "\uff0c。" * 3, 150_000),
    "Chinese without punctuation": drawn(HANZI, 130_000),
    "one letter": "a" * tokens.LONGEST_RUN_CHARS,
    "digits": "7" * tokens.LONGEST_RUN_CHARS,
}


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_a_long_text_is_encoded_in_short_steps(name: str) -> None:
    text = LONG_TEXTS[name]
    ids, seconds = timed_steps(encode_steps(text, limit=200_000))

    assert decode(ids) == text
    assert max(seconds) < STEP_SECONDS
    if name in ("prose", "minified JSON", "Chinese prose"):  # they have places to cut
        assert len(seconds) >= len(text) // tokens.SLICE_CHARS


def test_a_text_past_the_limit_is_refused_before_all_of_it_is_encoded() -> None:
    assert list(timed_steps(encode_steps("one two three", limit=3))[0]) == encode("one two three")
    for limit in (0, 2):
        with pytest.raises(TooManyTokens):
            timed_steps(encode_steps("one two three", limit))
    steps = encode_steps(LONG_TEXTS["prose"], limit=10_000)
    next(steps)

    with pytest.raises(TooManyTokens):
        next(steps)


@pytest.mark.parametrize("text", ["a" * 10_000_000, "7" * 131_073], ids=["letters", "digits"])
def test_a_run_without_a_place_to_cut_is_refused_at_once(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(RunTooLong):
        timed_steps(encode_steps(text, limit=10**9))

    assert time.thread_time() - began < STEP_SECONDS
