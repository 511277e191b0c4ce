"""What a server has read of its model: written between marks of ours, and read again as segments."""

import json

from hypothesis import given
from hypothesis import strategies as st

from service.features.models.markup.by_server import SIGN, ByServer, ServerWriting
from service.harmony import tokens
from service.harmony.segments import Closed, Opened

TEXTS = st.text(alphabet=[SIGN, "t", "a", "c", "n", "d", "z", "x", "\n", "{", "é"], max_size=12)
SAID = st.lists(st.tuples(st.sampled_from(["thinks", "answers", "calls"]), TEXTS), max_size=8)


def read(*written: str) -> list[tuple[str, str, str, int | None]]:
    """The channel, the recipient, the text and the stop of each segment, of texts with an id each."""
    parser = ByServer({"add": "mcp.maths.add"})
    segments = [segment for text in written for segment in parser.feed([0], text)] + parser.end()
    found: list[tuple[str, str, str, int | None]] = []
    texts: list[str] = []
    header = None
    for segment in segments:
        if isinstance(segment, Opened):
            header, texts = segment.header, []
        elif isinstance(segment, Closed):
            assert header is not None
            found.append((header.channel or "", header.recipient or "", "".join(texts), segment.stop))
        else:
            texts.append(segment)
    return found


def test_reasoning_an_answer_and_calls_are_segments_as_of_every_model() -> None:
    writing = ServerWriting()
    said = [writing.thinks("Hm"), writing.thinks("."), writing.answers("I look."), writing.calls("get_weather")]
    said += [
        writing.arguments('{"city":'),
        writing.arguments('"Paris"}'),
        writing.calls("add"),
        writing.arguments("{}"),
    ]
    assert read(*said, writing.ends()) == [
        ("analysis", "", "Hm.", tokens.END),
        ("final", "", "I look.", tokens.END),
        ("commentary", "functions.get_weather", '{"city":"Paris"}', tokens.CALL),
        ("commentary", "mcp.maths.add", "{}", tokens.CALL),
    ]


def test_what_breaks_off_stays_open_and_a_call_of_no_object_can_not_be_read() -> None:
    writing = ServerWriting()
    assert read(writing.answers("Well")) == [("final", "", "Well", None)]
    writing = ServerWriting()
    said = [writing.calls("get_weather"), writing.arguments('{"city":')]
    assert read(*said)[0][3] is None
    assert read(*said, writing.ends())[0][3] is None


@given(SAID)
def test_no_text_of_a_model_s_is_taken_for_a_mark(said: list[tuple[str, str]]) -> None:
    writing, written, calls = ServerWriting(), list[str](), 0
    for kind, text in said:
        if kind == "calls":
            written += [writing.calls("add"), writing.arguments(json.dumps({"text": text}, ensure_ascii=False))]
            calls += 1
        else:
            written.append(writing.thinks(text) if kind == "thinks" else writing.answers(text))
    found = read(*written, writing.ends())
    arguments = [json.loads(text)["text"] for channel, _, text, _ in found if channel == "commentary"]
    assert arguments == [text for kind, text in said if kind == "calls"]
    for kind, channel in (("thinks", "analysis"), ("answers", "final")):
        text = "".join(each for name, _, each, _ in found if name == channel)
        whole = "".join(each for name, each in said if name == kind)
        assert text.replace("\n", "") == whole.replace("\n", "")
