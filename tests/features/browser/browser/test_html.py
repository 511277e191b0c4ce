"""HTML to the text of a page."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.features.browser.browser.html import html_page
from service.features.browser.browser.page import MAX_LINKS, MAX_PAGE_CHARS, REST, Page, lines_of

URL = "https://tides.example/a/brest"
MOST_CPU_SECONDS = 6.0
"""For half a megabyte of the worst HTML, on any machine. A parser that builds a tree took ten minutes for some."""


def page_of(html: str) -> Page:
    return html_page(html, URL, lambda: None)


def text_of(html: str) -> str:
    """The text below the page's address."""
    return page_of(html).text.removeprefix(f"\nURL: {URL}\n")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>Tides </h1><p>High  tide\nat <b>10:04</b>.</p>", "# Tides\n\nHigh tide at 10:04."),
        ("<p>See <a href='/help'> help</a>.", "See 【0†help】."),
        ("<a href=https://other.example/x>other</a>", "【0†other†other.example】"),
        ("<a href=x>one</a> <a href=y>two</a> <a href=x>three</a>", "【0†one】 【1†two】 【0†three】"),
        ("<a href='#top'>top</a> <a href='mailto:a@b.c'>mail</a> <a href='javascript:x()'>run</a>", "top mail run"),
        ("<a href=x><div>a</div><div>b†c</div></a>", "【0†a b‡c】"),
        ("<a href=x><img alt='A map'></a>", "[Image 0: A map]"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "  * a\n  * b\n\n  * c\n\nd"),
        ("<table><tr><th>High<th>Low<tr><td>1<td>2</table>", "High | Low\n1 | 2"),
        ("<pre>one\n  two</pre>", "one\n  two"),
        ("a<script>s()</script><style>t</style><nav>n</nav><p hidden>h</p>b", "a\n\nb"),
        ("&lt;|end|&gt; 【1†L2】\u200b", "<|end|> 〖1†L2〗"),
        ("&#12304;1&dagger;L2&#x3011;<a href=x>&#12304;9&dagger;y&#12305;</a>", "〖1†L2〗【0†〖9‡y〗】"),
        ("<img alt='&#12304;3&dagger;z&#12305;'>&#8203;", "[Image 0: 〖3†z〗]"),
        ("<a href='http://evil.example\\\\@tides.example/'>x</a>", "x"),
        ("<", "<"),
    ],
)
def test_what_a_reader_sees_is_the_text(html: str, text: str) -> None:
    assert text_of(html) == text


def test_a_page_has_no_more_text_and_links_than_there_may_be() -> None:
    long = page_of("<p>word</p>" * 200_000)
    linked = page_of("".join(f"<a href=/{n}>{n}</a> " for n in range(MAX_LINKS + 10)))

    assert len(long.text) <= MAX_PAGE_CHARS + len(REST) + 200
    assert long.text.endswith(REST)
    assert len(linked.links) == MAX_LINKS
    assert linked.text.endswith(f" {MAX_LINKS + 9}")


WORST = {
    "nested blocks": "<div>" * 100_000,
    "fonts that differ": "".join(f"<font size={n}><p>" for n in range(20_000)),
    "attributes": "<p " + " ".join(f"a{n}=1" for n in range(60_000)) + ">x",
    "links": "<a href=x>" * 50_000,
    "marks": "<" * 500_000,
    "comments": "<!--" * 120_000,
    "ends": "<b>" * 2_000 + "<div></b>" * 20_000,
    "a line": "x" * 500_000,
    "brackets": "【" * 300_000,
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_page_takes_no_longer_than_its_length(name: str) -> None:
    began = time.process_time()
    page = page_of(WORST[name])
    lines_of(page.text)

    assert time.process_time() - began < MOST_CPU_SECONDS
    assert len(page.text) <= MAX_PAGE_CHARS + len(REST) + 200


TAGS = [
    *("a", "p", "div", "ul", "li", "table", "tr", "td", "pre", "h1", "sup", "script", "title", "nav", "img", "br"),
    *("b", "svg", "form", "base", "html", "body", "head"),
]
PIECES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["<", ">", "</", "<!--", "-->", "&amp;", "&#0;", "&#xD800;", "【3†x】", "\0", "<![CDATA[", "<?x"]),
    st.sampled_from(["&#12304;1&#8224;", "&#x3011;", "<img alt=&#12304;>", "<title>&#12304;"]),
    st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]),
    st.sampled_from(["<a href=/x>", "<a href='http://[bad'>", "<a href='//h\u200b/【'>", "<p hidden>", "<img alt=†>"]),
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_html_has_a_text_whose_links_can_be_told(html: str) -> None:
    page = page_of(html)

    assert isinstance(page, Page)
    for mark in _marks(page.text):
        assert int(mark) < len(page.links)
    assert "\n".join(lines_of(page.text)).count("【") == len(_marks(page.text))


def _marks(text: str) -> list[str]:
    """The numbers of a text's links; each of its brackets has to begin one."""
    parts = text.split("【")[1:]
    return [part.partition("†")[0] for part in parts]
