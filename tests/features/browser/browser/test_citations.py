"""Marks in an answer that become links, and annotations with the spans of these."""

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.api.citing import Cited
from service.api.response import Logprob
from service.features.browser.browser.browser import matches
from service.features.browser.browser.citations import Citations, Source, source_of
from service.features.browser.browser.page import Display, Result, page_of, results_page

BREST = Source("https://tides.example/brest", "Tides in Brest")
SHOWN = "([tides.example](https://tides.example/brest))"


def source(cursor: int, line: int) -> Source | None:
    """Cursors 0 to 9 have been shown."""
    return BREST if cursor < 10 else None


def cited(*pieces: str) -> tuple[str, list[Cited]]:
    """The text that a client sees of pieces, and the pieces with an annotation, each checked."""
    citations = Citations(source)
    out = [given for piece in pieces for given in citations.take(piece)] + citations.rest()
    text = "".join(piece.text for piece in out)
    annotated = [piece for piece in out if piece.annotation is not None]
    for piece in annotated:
        assert piece.annotation is not None
        assert text[piece.annotation["start_index"] : piece.annotation["end_index"]] == piece.text
    return text, annotated


def test_a_mark_becomes_a_link_with_its_span() -> None:
    text, annotated = cited("High water is at ten【3†L9-L11】.")

    assert text == f"High water is at ten {SHOWN}."
    assert [piece.annotation for piece in annotated] == [
        {
            "type": "url_citation",
            "start_index": 21,
            "end_index": 21 + len(SHOWN),
            "url": "https://tides.example/brest",
            "title": "Tides in Brest",
        }
    ]


def test_what_is_no_mark_stays_as_it_is() -> None:
    for text in (
        "【】",
        "【3】",
        "【x†L1】",
        "【3†】",
        "【33†L1】",
        "【3†L1",
        "a 【",
        "【" * 5,
        "【3†" + "x" * 500 + "】",
    ):
        assert cited(text) == (text, [])


def test_a_mark_is_held_back_until_it_is_whole() -> None:
    citations, beside = Citations(source), Logprob("t", -1.0, [116], [])

    assert [piece.text for piece in citations.take("ten 【3†L", [beside])] == ["ten "]
    assert citations.take("9") == []
    assert [(piece.text, piece.beside) for piece in citations.take("】!", [beside])] == [
        (SHOWN, ()),
        ("!", [beside] * 2),
    ]


LONG = [f"【3†{'x' * size}】" for size in (150, 196, 197, 198)] + [f"【3†L1†{'x' * size}】" for size in (150, 180)]
PIECES = st.lists(
    st.one_of(
        st.sampled_from(LONG),
        st.sampled_from(["【3†L1】", "【3", "†", "】", "【", "L1", "【12†L2】", " ", "é🌊"]),
        st.text(max_size=5),
    ),
    max_size=20,
)


@given(PIECES, st.lists(st.integers(0, 600), max_size=10))
def test_however_a_text_comes_it_is_cited_alike(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    parts = [text[one:other] for one, other in pairwise(places)]
    whole, annotated = cited(text)
    apart, others = cited(*parts)

    assert whole == apart
    assert [piece.annotation for piece in annotated] == [piece.annotation for piece in others]


# --- what a mark leads to ---

PAGE = page_of("https://tides.example/brest", "Tides in Brest", "High water at ten.\nLow water at four.")


def test_a_page_leads_to_itself_and_what_was_found_in_it_does_too() -> None:
    displays = [Display(PAGE), Display(again=0), Display(matches(PAGE, "water"))]

    assert [source_of(displays, cursor, 2) for cursor in (0, 1, 2, 3)] == [BREST, BREST, BREST, None]


def test_an_answer_of_many_marks_takes_no_longer_for_them() -> None:
    results = results_page("tides", [Result(f"https://{n}.example/", "Tides " * 40, "x " * 250) for n in range(20)])
    began = time.process_time()
    led = [source_of([Display(results)], 0, line) for line in range(2_000)]

    assert len(set(led)) == 21
    assert time.process_time() - began < 2.0  # 6 s where the lines are counted for each mark
