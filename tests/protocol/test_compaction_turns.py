"""Conversations that have outgrown their threshold: compacted first, then answered, in one response."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.course import asked, ended
from service.engine.port import Generation, ModelCard, Sampling
from service.engine.scripted import ScriptedEngine
from service.protocol import compacted, sealed, tokens
from service.protocol.compacting import ASK, PARTLY
from service.protocol.constraints import HeaderState, header_tag, schema_content
from service.protocol.machine import Ending, Machine
from service.protocol.outgrown import newest_input
from service.protocol.prompt import Prompt
from service.protocol.render import PROMPT_END, message
from service.protocol.response import Compaction
from service.protocol.rules import Callee, Rules
from service.protocol.steps import in_one_go
from service.run import Sampler
from store.turn import StoredMessage
from tests.event_grammar import check_stream
from tests.protocol import samples
from tests.protocol.requests import IDENTITY, Json, prompt
from tests.protocol.samples import NOW, as_json, harmony

USER: Json = {"role": "user", "content": "My boat is called Vesper."}
ANSWER: Json = {"role": "assistant", "content": "A fine heron of the sea."}
NEXT: Json = {"role": "user", "content": "Where does she lie?"}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "In the harbour."}
AT_ONCE = [{"type": "compaction", "compact_threshold": 1}]
SUMMARY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>A boat.<|return|>"
FINAL = "<|channel|>final<|message|>In the harbour.<|return|>"


def outgrown(*items: Json, chain: Sequence[StoredMessage] = (), **body: Any) -> Prompt:
    """The prompt of a request that compacts as soon as it can."""
    return prompt(chain, input=list(items), **{"context_management": AT_ONCE, **body})


def texts(messages: Sequence[StoredMessage]) -> list[str]:
    return [tokens.decode(tokens.unpack(message.tokens)).rpartition("<|message|>")[2] for message in messages]


# --- when, and what ---


def test_what_is_older_than_the_newest_input_is_compacted() -> None:
    made = outgrown(USER, ANSWER, NEXT)
    assert made.rules.onward is not None
    text = tokens.decode(made.tokens)

    assert made.rules.carried == (made.messages[0],)
    assert made.rules.onward.newest == (made.messages[2],)
    assert "heron" in text
    assert text.index("heron") < text.index(ASK)
    assert "Where does she lie?" not in text


def test_a_chain_is_compacted_like_what_a_client_sends() -> None:
    chained = outgrown(NEXT, chain=prompt(input=[USER, ANSWER]).messages)

    assert chained.tokens == outgrown(USER, ANSWER, NEXT).tokens
    assert chained.rules == outgrown(USER, ANSWER, NEXT).rules


def test_the_new_prompt_opens_as_the_old_one_does() -> None:
    made, plain = (outgrown(USER, ANSWER, NEXT, instructions="Be brief.", **more) for more in ({}, NOTHING))
    assert made.rules.onward is not None
    opening = made.rules.onward.opening

    assert made.tokens[:opening] == plain.tokens[:opening]
    assert tokens.decode(made.tokens[opening:]).startswith("<|start|>user") or made.tokens[opening] == tokens.START


NOTHING: Json = {"context_management": None}


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

    assert (at.rules.onward is None, below.rules.onward is None) == (True, False)


def test_without_a_threshold_three_quarters_of_the_context_are_one() -> None:
    long = {"role": "assistant", "content": "word " * 3000}
    for context, due in ((4200, False), (3900, True)):
        identity = msgspec.structs.replace(IDENTITY, context_tokens=context)
        made = prompt((), identity, input=[USER, long, NEXT], context_management=[{"type": "compaction"}])
        assert (made.rules.onward is not None) == due


@pytest.mark.parametrize("items", [[NEXT], [USER, NEXT]])
def test_there_is_nothing_to_compact_before_the_model_has_spoken(items: list[Json]) -> None:
    assert outgrown(*items).rules.onward is None


def test_what_is_compacted_already_is_not_compacted_again() -> None:
    shut = Rules(compacting=True)
    machine = samples.sampled(SUMMARY, rules=shut)

    assert outgrown(NEXT, chain=machine.messages).rules.onward is None


def test_an_output_stays_with_its_call_and_the_thought_before_it() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "I look."}]}
    made = outgrown(USER, ANSWER, NEXT, thought, CALL, OUTPUT)
    assert made.rules.onward is not None

    assert made.rules.onward.newest == tuple(made.messages[3:])
    assert made.rules.carried == (made.messages[0], made.messages[2])


def test_a_trigger_comes_before_a_threshold() -> None:
    made = prompt(input=[USER, ANSWER], context_management=AT_ONCE, compacting=ASK)

    assert (made.rules.compacting, made.rules.onward) == (True, None)


def test_what_no_longer_fits_can_still_be_compacted() -> None:
    long = {"role": "user", "content": "word " * 600}
    narrow = msgspec.structs.replace(IDENTITY, context_tokens=1500)
    body: Json = {"input": [USER, {**ANSWER, "content": "word " * 900}, long], "context_management": AT_ONCE}

    assert prompt((), narrow, **body, max_output_tokens=16).rules.onward is not None


def test_where_the_user_s_own_words_are_too_long_the_oldest_are_left_to_the_summary() -> None:
    narrow = msgspec.structs.replace(IDENTITY, context_tokens=1500)
    items = [{**USER, "content": "word " * 1000}, ANSWER, USER, ANSWER, NEXT]
    made = prompt((), narrow, input=items, context_management=AT_ONCE)

    assert made.rules.onward is not None
    assert made.rules.carried == (made.messages[2],)
    assert PARTLY in tokens.decode(made.tokens)


def test_however_much_the_user_says_it_is_not_compacted_at_each_turn_nor_for_ever_forgotten() -> None:
    narrow = msgspec.structs.replace(IDENTITY, context_tokens=1500)
    threshold = [{"type": "compaction", "compact_threshold": 600}]
    chain: list[StoredMessage] = []
    compactions: list[bool] = []
    for number in range(40):
        said = {"role": "user", "content": f"{number} " + "word " * 100}
        made = prompt(chain, narrow, input=[said], context_management=threshold, max_output_tokens=50)
        chain += made.messages
        compactions.append(made.rules.onward is not None)
        if made.rules.onward is not None:
            done = sealed.Compaction("A summary.", made.rules.carried, made.rules.onward.newest)
            chain += in_one_go(compacted.compaction_messages(done, limit=1000))
        chain.append(message("Short.", "assistant", channel="final"))

    assert compactions[10:].count(True) <= len(compactions[10:]) // 2
    assert any(compactions[-4:])
    assert " ".join(texts(made.shown)).count("38 word") == 1


def test_what_is_not_worth_a_summary_is_not_compacted() -> None:
    items = [{**USER, "content": "word " * 400}, ANSWER, NEXT]
    managing = [{"type": "compaction", "compact_threshold": 450}]

    assert prompt(input=items, context_management=managing).rules.onward is not None
    items = [USER, ANSWER, {**NEXT, "content": "word " * 400}]
    assert prompt(input=items, context_management=managing).rules.onward is None


def test_where_the_newest_input_is_too_long_nothing_is_compacted() -> None:
    narrow = msgspec.structs.replace(IDENTITY, context_tokens=1500)
    items = [USER, ANSWER, {**NEXT, "content": "word " * 1200}]

    assert prompt((), narrow, input=items, context_management=AT_ONCE).rules.onward is None


ROLES = st.lists(st.sampled_from(["user", "final", "analysis", "call", "output", "unnamed", "answered"]), max_size=14)


@settings(max_examples=200, derandomize=True)
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


# --- the two turns ---

SCHEMA = schema_content({"type": "object", "properties": {}, "additionalProperties": False})
MADE = outgrown(USER, ANSWER, NEXT)
ONWARD = MADE.rules.onward
assert ONWARD is not None
OPENING = ONWARD.opening
WHOLE = Generation("resp_1", MADE.tokens, Sampling(500, stop_ids=tokens.ENDS))


def began(rules: Rules = MADE.rules) -> Machine:
    machine = Machine(samples.created(), rules, len(MADE.tokens), samples.sealed)
    machine.begin()
    return machine


def run(machine: Machine, engine: ScriptedEngine, whole: Generation = WHOLE) -> tuple[Ending, list[Any]]:
    async def sampled() -> tuple[Ending, list[Any]]:
        sampling = Sampler(engine, whole, machine, seconds=60)
        told = [event async for step in sampling.steps() for event in step.events]
        return sampling.ending, told

    return asyncio.run(sampled())


def made(
    *script: str | list[int], rules: Rules = MADE.rules, budget: int = 500
) -> tuple[Machine, Any, list[Generation]]:
    """The machine, the response, and what the engine was asked."""
    scripts = [[ids if isinstance(ids, list) else harmony(ids)] for ids in script]
    engine = ScriptedEngine(ModelCard("scripted", NOW, 131_072), *scripts)
    machine = Machine(samples.created(), rules, len(MADE.tokens), samples.sealed)
    events = machine.begin()
    sampling = msgspec.structs.replace(WHOLE.sampling, max_tokens=budget)
    ending, told = run(machine, engine, msgspec.structs.replace(WHOLE, sampling=sampling))
    events += told + machine.end(ending)
    response = machine.result(ending, now=NOW)
    check_stream([as_json(event) for event in events + machine.terminal(response)])
    return machine, response, engine.generations


def test_the_answer_comes_from_the_summary_and_the_newest_input() -> None:
    machine, response, generations = made(SUMMARY, FINAL)
    first, second = generations
    text = tokens.decode(list(second.prompt)[OPENING:])

    assert [item.type for item in map(as_thing, response.output)] == ["compaction", "message"]
    assert list(first.prompt) == list(MADE.tokens)
    assert list(second.prompt)[:OPENING] == list(MADE.tokens)[:OPENING]
    assert text.index("Vesper") < text.index("A boat.") < text.index("Where does she lie?")
    assert "heron" not in text
    assert response.status == "completed"
    kept = b"".join(message.tokens for message in machine.messages[:-1])
    assert list(second.prompt)[OPENING:] == list(tokens.unpack(kept + PROMPT_END))


def as_thing(item: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(item), type=Thing)


class Thing(msgspec.Struct):
    type: str


def test_the_next_prompt_is_the_same_for_who_continues_and_who_sends_all_again() -> None:
    machine, response, generations = made(SUMMARY, FINAL)
    more = {"role": "user", "content": "And now?"}
    chained = prompt([*MADE.messages, *machine.messages], input=[more]).tokens
    output = [as_json(item) for item in response.output]
    whole, pruned = (prompt(input=[*before, *output, more]).tokens for before in ([USER, ANSWER, NEXT], []))

    assert list(chained[: len(generations[1].prompt)]) == list(generations[1].prompt)
    assert list(whole) == list(pruned) == list(chained)


def test_what_travels_in_the_item_is_what_the_user_said_and_the_newest_input() -> None:
    _, response, _ = made(SUMMARY, FINAL)
    payload = bytes.fromhex(response.output[0].encrypted_content.partition(":")[2])

    assert sealed.read_compaction(payload) == sealed.Compaction("A boat.", MADE.rules.carried, MADE.rules.newest)


def test_its_usage_counts_both_turns() -> None:
    _, response, generations = made(SUMMARY, FINAL)
    prompts, sampled = [len(each.prompt) for each in generations], [len(harmony(each)) for each in (SUMMARY, FINAL)]
    usage = response.usage

    assert usage.input_tokens_details.input_tokens_per_turn == prompts
    assert usage.output_tokens_details.output_tokens_per_turn == sampled
    assert (usage.input_tokens, usage.output_tokens) == (sum(prompts), sum(sampled))


def test_a_budget_spans_both_turns() -> None:
    _, response, generations = made(SUMMARY, FINAL, budget=len(harmony(SUMMARY)) + 4)

    assert generations[1].sampling.max_tokens == 4
    assert (response.status, len(response.output)) == ("incomplete", 2)
    assert made(SUMMARY, FINAL, budget=len(harmony(SUMMARY)))[1].status == "incomplete"


def test_an_answer_has_no_more_room_than_the_context_leaves() -> None:
    onward = msgspec.structs.replace(ONWARD, context_tokens=1000)
    _, _, generations = made(SUMMARY, FINAL, rules=msgspec.structs.replace(MADE.rules, onward=onward), budget=5000)

    assert [len(each.prompt) + each.sampling.max_tokens for each in generations] == [1000, 1000]


@pytest.mark.parametrize("budget", [1, 5, len(harmony(SUMMARY)) - 1])
def test_half_a_summary_is_none(budget: int) -> None:
    machine, response, generations = made(SUMMARY, FINAL, budget=budget)

    assert (response.status, len(generations), machine.messages) == ("incomplete", 1, [])
    assert [item for item in response.output if not isinstance(item, Compaction) or item.encrypted_content] == []


def test_a_summary_of_nothing_fails_the_response() -> None:
    machine, response, _ = made("<|channel|>final<|message|> <|return|>", FINAL)

    assert (response.status, machine.messages) == ("failed", [])
    assert "summary" in response.error.message


def test_a_summary_that_could_not_be_sealed_fails_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "MAX_SUMMARY_BYTES", 6)
    machine, response, _ = made(SUMMARY, FINAL)

    assert (response.status, machine.messages) == ("failed", [])
    assert "longer than 6 bytes" in response.error.message


@pytest.mark.parametrize(
    "said", ["<|channel|>analysis<|message|>Hm.<|return|>", "<|channel|>commentary to=functions.f<|message|>{}<|call|>"]
)
def test_without_a_summary_there_is_no_answer(said: str) -> None:
    machine, response, generations = made(said, FINAL)

    assert (response.status, response.incomplete_details.reason) == ("incomplete", "no_output")
    assert (response.output, machine.messages, len(generations)) == ([], [], 1)


def test_what_holds_for_the_answer_holds_for_the_answer_alone() -> None:
    rules = msgspec.structs.replace(
        MADE.rules, callees=(Callee("f", content=SCHEMA),), choice="required", answer=SCHEMA, stop=("A b",), parallel=1
    )
    call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    _, response, generations = made(SUMMARY, call, rules=rules)
    free = header_tag(rules.first, HeaderState.NEXT)

    assert [as_thing(item).type for item in response.output] == ["compaction", "function_call"]
    assert generations[0].sampling.structural_tag == free
    assert generations[1].sampling.structural_tag == header_tag(rules, HeaderState.NEXT)
    assert '"functions.f"' not in (free or "")


def test_tokens_of_the_summary_are_shown_with_no_log_probabilities() -> None:
    rules = msgspec.structs.replace(MADE.rules, top_logprobs=1)
    scripts = [[harmony(SUMMARY)], [harmony(FINAL)]]
    machine = began(rules)
    sampling = msgspec.structs.replace(WHOLE.sampling, logprobs=1)
    engine = ScriptedEngine(ModelCard("scripted", NOW, 131_072), *scripts)
    ending, _ = run(machine, engine, msgspec.structs.replace(WHOLE, sampling=sampling))
    machine.end(ending)
    shown: Any = machine.output[1]

    assert "".join(each.token for each in shown.content[0].logprobs) == "In the harbour."


# --- with workers that die ---


def by_prompt(first: list[int], then: list[int]) -> ScriptedEngine:
    """An engine that samples `first` behind the ask and `then` behind a compaction, from wherever its prompt ends."""

    def script(generation: Generation) -> list[list[int]]:
        given = list(generation.prompt)
        if given[: len(MADE.tokens)] == list(MADE.tokens):
            ids, behind = first, given[len(MADE.tokens) :]
        else:
            place = max(at for at in range(len(given)) if given[at : at + len(BEHIND)] == BEHIND) + len(BEHIND)
            ids, behind = then, given[place:]
        assert behind == ids[: len(behind)]
        return [[token] for token in ids[len(behind) :]]

    return ScriptedEngine(ModelCard("scripted", NOW, 131_072), script)


BEHIND = list(tokens.unpack(MADE.messages[2].tokens + PROMPT_END))


def sampled(rules: Rules, engine: ScriptedEngine, deaths: Sequence[int]) -> tuple[list[Any], Any]:
    """The events and the end of a response whose workers die after so many steps."""

    async def steps() -> tuple[list[Any], Any]:
        journal, events, ending = b"", began(rules).begin(), Ending.ERROR
        machine = began(rules)
        for count in [*deaths, None]:
            machine = began(rules)
            in_one_go(machine.replay(journal))
            over = ended(machine, WHOLE.sampling.max_tokens)
            if over is not None:
                ending = over
                break
            assert asked(WHOLE, machine).prompt[:OPENING] == WHOLE.prompt[:OPENING]
            sampling = Sampler(engine, WHOLE, machine, seconds=60)
            async with aclosing(sampling.steps()) as running:
                taken = 0
                while taken != count and (step := await anext(running, None)) is not None:
                    events += step.events
                    journal += tokens.pack(step.tokens)
                    taken += 1
            ending = sampling.ending
        events += machine.end(ending)
        return [as_json(event) for event in events], as_json(machine.result(ending, now=NOW))

    return asyncio.run(steps())


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    deaths=st.lists(st.integers(0, 25), max_size=4),
    first=st.just(harmony(SUMMARY)) | samples.rambling,
    then=samples.generations,
    parallel=st.sampled_from([1, 9]),
)
def test_it_is_the_same_however_many_workers_it_takes(
    deaths: list[int], first: list[int], then: list[int], parallel: int
) -> None:
    rules = msgspec.structs.replace(MADE.rules, callees=samples.RULES.callees, parallel=parallel, sealed=True)

    assert sampled(rules, by_prompt(first, then), deaths) == sampled(rules, by_prompt(first, then), [])
