"""What whoever reads a markup must do with a generation, token by token and without a service: turns as models write
them, turns that break, mutated ones, and each of them however it was cut.
"""

import json
import random
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pytest

from service.api import response as shapes
from service.api.events import Event
from service.engine.port import TokenLogprobs
from service.harmony.segments import Closed
from service.harmony.tokens import CALL, END, RETURN
from service.responses.output.journal import Batch, batch_of, decode_sampled, encode_batch
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import Phase
from service.responses.output.reading import Piece
from service.responses.output.rules import Rules
from tests.support.markup.hooks import MarkupHooks
from tests.support.markup.streams import Message, Token, cut, messages_of, segments_of
from tests.support.markup.transcripts import DOCUMENTED
from tests.support.markup.writing import Turn, draw_turn
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses.samples import NOW, as_json

DRAWN, SHORT, LONG = 60, 400, 10_000
"""How many turns are drawn, and how many streams mutated, without `full` and with it."""
MACHINES = 20
"""How many mutated streams become responses."""
WORD = re.compile(r"w\d{4}z")

WEATHER = {"city": "Paris", "days": 3}
ALL = Turn("Hm.\n\nParis.", "I look it up.", [("get_weather", WEATHER), ("now", {}), ("get_weather", {"city": "Oslo"})])
TURNS = {
    "an answer": Turn("", "Paris \U0001f600.\n\nAnd more.", []),
    "reasoning and an answer": Turn("Hm.\n\nWell.", "Paris.", []),
    "calls behind reasoning and text": ALL,
    "text behind a call": Turn("", "", [("now", {})], "So."),
}

Kind = tuple[str, Any, int | None]


def kinds(messages: Iterable[Message]) -> list[Kind]:
    """What each message is, whatever its markup calls that: arguments as the value that they are."""
    return [
        (each.to, json.loads(each.text), each.stop)
        if each.to.startswith("functions.") and each.stop
        else ({"analysis": "reasoning", "final": "text", "commentary": "text"}.get(each.to, each.to), *each[1:])
        for each in messages
    ]


class ReadingConformance(MarkupHooks):
    """The tests of what reads a markup."""

    # --- turns as models write them ---

    def messages(self, tokens: Sequence[Token], *, thinking: bool = False, spelled: bool = False) -> list[Message]:
        """What is read of tokens that come one by one."""
        return messages_of(segments_of(self.reader(spelled=spelled, thinking=thinking), [[each] for each in tokens]))

    def expected(self, turn: Turn) -> list[Kind]:
        """What a turn is to be read as."""
        out: list[Kind] = [("reasoning", turn.reasoning, END)] if turn.reasoning else []
        if turn.text or not turn.calls:
            out.append(("text", turn.text, END if turn.calls else RETURN))
        out += [(f"functions.{name}", value, CALL) for name, value in turn.calls]
        return [*out, ("text", turn.behind, RETURN)] if turn.behind else out

    @pytest.mark.parametrize("spelled", [False, True], ids=["tokens", "spelled"])
    def test_a_turn_is_read_as_it_was_written(self, spelled: bool) -> None:
        for turn in map(self.able, TURNS.values()):
            messages = self.messages(self.tokens(self.written(turn), spelled=spelled), spelled=spelled)
            assert kinds(messages) == self.expected(turn)

    def test_drawn_turns_are_read_as_they_were_written(self) -> None:
        for seed in range(DRAWN):
            turn = self.able(draw_turn(random.Random(seed), ["get_weather"]))
            assert kinds(self.messages(self.tokens(self.written(turn), seed=seed))) == self.expected(turn), seed

    # --- calls that break ---

    def test_a_call_that_was_cut_short_is_unfinished(self) -> None:
        self.need("calls")
        whole = self.written(Turn("", "", [("get_weather", WEATHER)]))
        *before, last = self.messages(self.tokens(whole[: whole.index("Paris") + 3]))
        assert before == []
        assert (last.to, last.stop) == ("functions.get_weather", None)
        assert "Par" in last.text

    # --- however it was cut ---

    @pytest.mark.parametrize("spelled", [False, True], ids=["tokens", "spelled"])
    def test_it_does_not_matter_where_a_stream_is_cut(self, spelled: bool) -> None:
        for name, text in self.streams().items():
            tokens = self.tokens(text, spelled=spelled, longest=1)
            messages = self.messages(tokens, spelled=spelled)
            for place in range(len(tokens) + 1):
                chunks = [tokens[:place], tokens[place:]]
                assert messages_of(segments_of(self.reader(spelled=spelled), chunks)) == messages, (name, place)

    def streams(self) -> dict[str, str]:
        """The turns, and what the makers of models have documented."""
        texts = {name: self.written(self.able(turn)) for name, turn in TURNS.items()}
        texts |= {name: each.text for name, each in DOCUMENTED.items() if each.markup == self.markup}
        return texts

    # --- mutated ones ---

    def test_mutated_streams_lose_no_text_and_end_in_the_same_however_they_are_cut(self) -> None:
        for seed in range(SHORT):
            self.check_mutated(seed)

    @pytest.mark.full
    @pytest.mark.timeout(1200)
    def test_ten_thousand_mutated_streams_lose_no_text(self) -> None:
        for seed in range(SHORT, SHORT + LONG):
            self.check_mutated(seed)

    def check_mutated(self, seed: int) -> None:
        """All promises on one mutated stream; in every other one the marks are tokens, where they can be."""
        spelled = seed % 2 == 0
        tokens, chance = self.drawn(seed, spelled=spelled)
        thinking = chance.random() < 0.3
        segments = segments_of(self.reader(spelled=spelled, thinking=thinking), [[each] for each in tokens])
        messages = messages_of(segments)
        check_nothing_is_lost(tokens, [each for each in segments if isinstance(each, Closed)], messages)
        if spelled:  # ordinary tokens may spell a mark beside the mark
            for chunks in ([tokens], list(cut(tokens, random.Random(seed)))):
                found = segments_of(self.reader(spelled=spelled, thinking=thinking), chunks)
                assert messages_of(found) == messages, seed

    def drawn(self, seed: int, *, spelled: bool) -> tuple[list[Token], random.Random]:
        """A turn as tokens, with some mutations; and what to draw on with."""
        chance = random.Random(f"{self.markup}{seed}")
        text = self.written(self.able(draw_turn(chance)))
        tokens = self.tokens(text, spelled=spelled, seed=chance.randrange(2**32))
        return self.mutated(tokens, chance, 6), chance

    def test_mutated_streams_are_responses_like_any_other(self) -> None:
        for seed in range(MACHINES):
            tokens, _ = self.drawn(seed, spelled=False)
            machine = self.machine(Rules())
            events = [*machine.begin(), *chain.from_iterable(self.fed(machine, tokens)), *ended(machine)]
            check_stream([as_json(event) for event in events])

    def test_text_behind_a_call_is_heard_to_its_end_though_somebody_steers(self) -> None:
        self.need("calls")
        machine = self.machine(Rules())
        machine.begin()
        tokens = self.tokens(self.written(TURNS["text behind a call"]))
        for token in tokens[:-1]:
            machine.feed([token.id], None, token.text)
        machine.steered = True
        assert machine.boundary is None
        machine.feed([tokens[-1].id], None, tokens[-1].text)
        assert machine.boundary is Ending.STOP
        ended(machine)
        assert [type(item) for item in machine.output] == [shapes.FunctionCall, shapes.Message]

    # --- whoever goes on ---

    @pytest.mark.parametrize("turn", ["reasoning and an answer", "calls behind reasoning and text"])
    def test_who_goes_on_from_any_token_says_what_the_first_would_have_said(self, turn: str) -> None:
        tokens = self.tokens(self.written(self.able(TURNS[turn])))
        rules = Rules(top_logprobs=1)
        first = self.machine(rules)
        made = [[*first.queue(), *first.start()], *self.fed(first, tokens)]
        whole = [*chain.from_iterable(made), *ended(first)]
        check_stream([as_json(event) for event in whole])
        for place in range(len(tokens) + 1):
            events = list(chain.from_iterable(made[: place + 1]))
            second = self.machine(rules)
            second.queue()
            second.start()
            self.replay(second, events, tokens[:place])
            assert [*events, *chain.from_iterable(self.fed(second, tokens[place:])), *ended(second)] == whole, place

    def replay(self, machine: Machine, events: list[Event], tokens: Sequence[Token]) -> None:
        """What a second worker does with the journal of the first."""
        ids, logprobs = batch_of([token.id for token in tokens]), tuple(map(likely, tokens))
        known = decode_sampled(
            encode_batch(Batch(events, ids, 0, logprobs, (), tuple(Piece(1, token.text) for token in tokens)))
        )
        for _ in machine.replay(known.tokens, known.logprobs, known.outcomes, known.pieces):
            pass

    def fed(self, machine: Machine, tokens: Sequence[Token]) -> list[list[Event]]:
        out: list[list[Event]] = []
        for token in tokens:
            logprobs = None if machine.rules.top_logprobs is None else [likely(token)]
            out.append(machine.feed([token.id], logprobs, token.text))
            if machine.phase is Phase.FEEDBACK:
                machine.give_feedback()
                if machine.stretches.unprompted:
                    machine.stretches.prompted(100, thinking=False)
        return out


def likely(token: Token) -> TokenLogprobs:
    """A log probability that tells one token from another."""
    return TokenLogprobs(-(token.id % 97) / 100, ((token.id, -0.5),), (token.text, token.text))


def ended(machine: Machine) -> list[Event]:
    events = machine.end(Ending.STOP)
    return [*events, *machine.terminal(machine.result(Ending.STOP, now=NOW))]


def check_nothing_is_lost(tokens: Sequence[Token], closed: Sequence[Closed], messages: Sequence[Message]) -> None:
    """Every word that was sampled is read, in order, and every id but what comes behind the last segment is in one."""
    ids = list(chain.from_iterable(each.ids for each in closed))
    assert ids == [token.id for token in tokens][: len(ids)]
    read = iter(WORD.findall(" ".join(f"{message.to} {message.text}" for message in messages)))
    sampled = "".join(token.text for token in tokens)
    assert all(word in read for word in WORD.findall(sampled)), "a word is missing, or in another place"
    behind = "".join(token.text for token in tokens[len(ids) :])
    assert not WORD.search(behind), "ids are missing that were no marks"
