"""Texts in the encodings of the web, and bytes that are none."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.search.web import CODECS, DECODED_BYTES, text_of


@pytest.mark.parametrize(
    ("text", "codec", "said"),
    [
        ("Café, 5 €", "cp1252", "ISO-8859-1"),
        ("潮汐", "gbk", "GB2312"),
        ("潮汐", "big5", "big5"),
        ("潮の満ち引き", "cp932", " Shift_JIS"),
        ("潮の満ち引き", "iso2022_jp", "iso-2022-jp"),
        ("밀물", "euc_kr", "ks_c_5601-1987"),
        ("Прилив", "koi8_r", "koi8-r"),
        ("Прилив", "cp1251", "windows-1251"),
        ("Café", "utf-16-le", "utf-16"),
        ("Café", "utf-8", None),
        ("Café", "utf-8", "nonsense"),
    ],
)
def test_a_text_is_read_as_it_was_said(text: str, codec: str, said: str | None) -> None:
    assert text_of(text.encode(codec), said, html=False) == text
    long = text * (DECODED_BYTES // len(text))
    assert text_of(long.encode(codec), said, html=False) == long


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_a_mark_at_the_beginning_counts_most(codec: str) -> None:
    assert text_of("Café".encode(codec), "iso-8859-2", html=False) == "Café"


def test_html_may_say_it_itself() -> None:
    page = '<meta http-equiv=x content="text/html; charset=koi8-r"><p>Прилив'

    assert text_of(page.encode("koi8-r"), None, html=True).endswith("Прилив")
    assert not text_of(page.encode("koi8-r"), None, html=False).endswith("Прилив")
    assert text_of(b"<meta charset=utf-16>Caf\xc3\xa9", None, html=True).endswith("Café")


@given(st.sampled_from(["utf-7", "unicode_escape", "raw_unicode_escape", *CODECS]), st.binary(max_size=60))
def test_any_bytes_are_a_text_that_can_be_stored(said: str, body: bytes) -> None:
    text = text_of(b"+2AA- \\ud800 \xed\xa0\x80 \x00\xd8" + body, said, html=True)

    assert text.encode().decode() == text


def test_no_encoding_takes_longer_than_its_text() -> None:
    body = b"a" * 150_000 + b"-" + b"a" * 150_000  # 15 s as Python's punycode, and four times that for each doubling
    began = time.process_time()
    text_of(body, "punycode", html=False)

    assert time.process_time() - began < 2.0
