"""Recognition: the digest with which a turn ends is found in the history that any client makes of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from service.api.content import MAX_PARTS
from service.api.response import FunctionCall, Message, OutputText, Reasoning, ReasoningText
from service.features.chats.recognise import PIECE_BYTES, Speaker, digest_after, seen_of
from service.responses.output.sealed import REASONING, reasoning
from service.responses.seal import Sealer
from service.responses.seen import Seen
from service.steps import in_one_go

Items = list[dict[str, Any]]

ADA: Items = [{"role": "user", "content": "My name is Ada."}]
CALLED: Items = [
    *ADA,
    {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":"sky","n":1.0}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
]


NOBODY = Speaker("", ("", "", ""), "", "")


def seen(items: Items | str, tenant: str = "acme", speaker: Speaker = NOBODY) -> Seen:
    raw = Raw(json.dumps(items, ensure_ascii=False).encode())
    found = in_one_go(seen_of(Sealer(tenant, [b"k" * 32]), speaker, raw))
    assert found is not None
    return found


def rest(seen: Seen, place: int, calls: list[str]) -> Raw:
    return in_one_go(seen.rest(place, calls))


def unseen(items: Items) -> bool:
    return in_one_go(seen_of(Sealer("acme", [b"k" * 32]), NOBODY, Raw(json.dumps(items).encode()))) is None


def message(text: str, phase: Any = "final_answer") -> Message:
    return Message(id="msg_1", status="completed", phase=phase, content=[OutputText(text)])


def call(arguments: str, name: str = "look") -> FunctionCall:
    return FunctionCall(id="fc_1", call_id="call_ours", name=name, arguments=arguments, status="completed")


def thought(text: str) -> Reasoning:
    return Reasoning(id="rs_1", status="completed", content=[ReasoningText(text)])


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "echo",
    [
        pytest.param([said("Hello\n\nAda.")], id="a text"),
        pytest.param([said("Hello\n\nAda.\n")], id="white space around an answer"),
        pytest.param(
            [said("") | {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello\n\nAda."}]}],
            id="a part, with an id",
        ),
        pytest.param([said("Hello"), said(" Ada.")], id="in two messages"),
        pytest.param(
            [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, said("Hello\n\nAda.")], id="reasoning"
        ),
    ],
)
def test_an_answer_is_known_in_every_form_that_clients_give_it(echo: Items) -> None:
    ended = digest_after(seen(ADA).said, [message("Hello ", "commentary"), message("Ada.")])
    assert seen([*ADA, *echo, *ADA]).ends[0][0] == ended


@pytest.mark.parametrize(
    ("sampled", "echoed"),
    [
        ('{"at":"sky","n":1.0}', '{"at": "sky", "n": 1.0}'),
        ('{"at":"caf\u00e9"}', '{"at":"caf\\u00e9"}'),
        ('{"at":"a\\/b\\n"}', '{"at":"a/b\\n"}'),
        ('{"at":"\\ud83d\\ude00"}', '{"at": "\U0001f600"}'),
        ("{}", ""),
        ('{"at":', '{"at":'),
    ],
)
def test_a_call_is_known_by_what_its_arguments_say(sampled: str, echoed: str) -> None:
    output = {"type": "function_call_output", "call_id": "theirs", "output": "blue"}
    ended = digest_after(seen(ADA).said, [thought("Look."), call(sampled)])
    again = seen([*ADA, {"type": "function_call", "call_id": "theirs", "name": "look", "arguments": echoed}, output])
    assert again.ends == [(ended, 2)]


@pytest.mark.parametrize(
    "changed",
    [
        [{"role": "user", "content": "My name is Bob."}, *CALLED[1:]],
        [*ADA, CALLED[1] | {"name": "hear"}, CALLED[2]],
        [*ADA, CALLED[1] | {"arguments": '{"n":1.0,"at":"sky"}'}, CALLED[2]],
        [*ADA, CALLED[1] | {"type": "custom_tool_call", "input": '{"at":"sky","n":1.0}'}, CALLED[2]],
        [{"role": "developer", "content": "My name is Ada."}, *CALLED[1:]],
        CALLED[1:],
    ],
)
def test_a_history_with_other_words_is_another_one(changed: Items) -> None:
    assert not {digest for digest, _ in seen(CALLED).ends} & {digest for digest, _ in seen(changed).ends}


@pytest.mark.parametrize(
    "speaker",
    [
        Speaker("key_1", ("", "", ""), "", ""),
        *(Speaker("", names, "", "") for names in (("ada", "", ""), ("", "ada", ""), ("", "", "ada"))),
        Speaker("", ("", "", ""), "ada", ""),
        Speaker("", ("", "", ""), "", "ada"),
    ],
)
def test_the_same_words_of_another_speaker_are_other_words(speaker: Speaker) -> None:
    other = seen(CALLED, speaker=speaker)
    assert {other.said, *(digest for digest, _ in other.ends)}.isdisjoint({seen(CALLED).said, seen(CALLED).ends[0][0]})
    assert (other.beginning != seen(CALLED).beginning, other.is_named) == (True, any(speaker.names))


IMAGE = {"type": "input_image", "image_url": "https://example.com/a"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    "others",
    [
        ([IMAGE], [_text(f"\0{json.dumps(IMAGE, separators=(',', ':'))}\0")]),
        ([_text("a"), IMAGE], [IMAGE, _text("a")]),
        ([IMAGE, _text("a"), IMAGE], [IMAGE, IMAGE, _text("a")], [_text("a"), IMAGE, IMAGE]),
        ([_text("a4:userb")], [_text("a")]),
        ([], [_text(" ")], [_text("\0")]),
    ],
)
def test_no_text_stands_for_a_part_of_another_kind_or_in_another_place(others: tuple[Items, ...]) -> None:
    assert len({seen([{"role": "user", "content": parts}]).said for parts in others}) == len(others)


def test_a_long_text_is_known_in_the_form_in_which_it_was_sent() -> None:
    long = "\n" * PIECE_BYTES
    forms = [long, [_text(long)], [_text(long), _text("")], [_text("a"), _text(long)], json.dumps(long)]
    known = [seen([{"role": "user", "content": form}]).said for form in forms]
    assert [known.index(each) for each in known] == [0, 0, 0, 3, 4]
    assert unseen([*ADA, said(long)])


def test_an_output_belongs_to_its_call_and_not_to_its_id() -> None:
    two = [CALLED[1] | {"call_id": id} for id in ("a", "b")]
    outputs = [{"type": "function_call_output", "call_id": id, "output": id.upper()} for id in ("a", "b")]
    other = [each | {"call_id": f"{each['call_id']}9"} for each in (*two, *outputs)]
    crossed = [outputs[0] | {"call_id": "b"}, outputs[1] | {"call_id": "a"}]
    assert seen([*ADA, *two, *outputs]).said == seen([*ADA, *other]).said
    assert seen([*ADA, *two, *outputs]).said != seen([*ADA, *two, *crossed]).said


def test_an_output_behind_a_match_answers_the_call_of_the_conversation() -> None:
    items = seen([*CALLED, *CALLED[1:]])
    assert rest(items, 2, ["call_1"]) == rest(items, 2, [])
    assert json.loads(bytes(rest(items, 2, ["call_ours"])))[0] == CALLED[2] | {"call_id": "call_ours"}
    assert json.loads(bytes(rest(items, 2, ["call_ours"])))[1:] == CALLED[1:]


@pytest.mark.parametrize("together", [True, False])
def test_ids_that_a_client_uses_again_name_the_calls_in_turn(together: bool) -> None:
    """Some clients name each call after its function, or count anew in each turn."""
    call, output = CALLED[1:]
    made = [call, call, output, output] if together else [call, output, call, output]
    places = [place for place, item in enumerate(made, 1) if item is output]
    items = seen([*ADA, *made, *ADA, call | {"call_id": "b"}, output | {"call_id": "b"}])
    assert items.answered == {places[0]: 0, places[1]: 1, 7: 2}
    assert items.said == seen([*ADA, *made, *ADA, call | {"call_id": "c"}, output | {"call_id": "c"}]).said


SEALED = Sealer("acme", [b"k" * 32]).seal(REASONING, reasoning("Hm."))
PLAIN: dict[str, Any] = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}


@pytest.mark.parametrize(
    ("thought", "claims"),
    [
        (PLAIN, 1),
        (PLAIN | {"encrypted_content": ""}, 1),
        (PLAIN | {"encrypted_content": "hs_forged"}, 1),
        (PLAIN | {"content": [], "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"}, 1),
        (PLAIN | {"encrypted_content": SEALED}, -1),
        (PLAIN | {"content": [], "encrypted_content": SEALED}, -1),
        (PLAIN | {"content": [], "encrypted_content": "x"}, -1),
        (PLAIN | {"content": None}, -1),
        (PLAIN | {"content": [], "summary": [{"type": "summary_text", "text": "Hm."}]}, -1),
    ],
)
def test_a_thought_that_was_not_sealed_here_is_its_client_s_own_word(thought: dict[str, Any], claims: int) -> None:
    given = seen([*ADA, thought, said("Hello."), *ADA])
    assert (given.claims, given.said) == (claims, seen([*ADA, said("Hello."), *ADA]).said)


def test_tenants_with_the_same_words_share_no_digest() -> None:
    assert seen(ADA).said != seen(ADA, "other").said
    assert seen(ADA).beginning != seen(ADA, "other").beginning


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "n", "arguments": "", "server_label": "s"},
        {"type": "function_call", "call_id": 7, "name": "look", "arguments": ""},
        {"role": "user", "content": [7]},
        {"role": "user", "content": [{"type": "input_text", "text": ""}] * (MAX_PARTS + 1)},
        {"role": "assistant", "content": [{"type": "input_image", "image_url": "https://example.com/a"}]},
        CALLED[2],
        CALLED[2] | {"call_id": "0"},
        CALLED[1],
        {name: value for name, value in CALLED[1].items() if name != "call_id"},
        {"content": "Nobody says it."},
    ],
)
def test_an_input_without_a_visible_form_is_not_recognised(item: dict[str, Any]) -> None:
    assert unseen([*ADA, item])


_words = st.text(max_size=20)
_heard = st.builds(lambda text: {"role": "user", "content": text}, _words)
_spoken = st.one_of(
    _words.filter(str.strip).map(message), st.dictionaries(_words, _words).map(lambda given: call(json.dumps(given)))
)


@given(st.lists(st.tuples(_heard, st.lists(_spoken, min_size=1, max_size=3)), min_size=1, max_size=6))
def test_each_end_of_a_conversation_is_found_in_its_history(turns: list[tuple[dict[str, Any], list[Any]]]) -> None:
    history: Items = []
    ends: list[bytes] = []
    for number, (heard, spoken) in enumerate(turns):
        history.append(heard)
        ends.append(digest_after(seen(history).said, spoken))
        outputs: Items = []
        for place, each in enumerate(spoken):
            if isinstance(each, Message):
                history.append(said(each.content[0].text))
            else:
                arguments = json.dumps(json.loads(each.arguments), ensure_ascii=False, indent=2)
                id = f"call_{number}_{place}"
                history.append({"type": "function_call", "call_id": id, "name": "look", "arguments": arguments})
                outputs.append({"type": "function_call_output", "call_id": id, "output": "so"})
        history += outputs
    assert [digest for digest, _ in reversed(seen([*history, *ADA]).ends)] == ends
