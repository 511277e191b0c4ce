"""The text of what a server sent, by the encodings that browsers know (https://encoding.spec.whatwg.org).

A server says which, so it is looked up here and never among Python's codecs: one of those takes an hour for some
megabytes (punycode), others give halves of characters, which nothing can store (utf-7, unicode_escape).
"""

import codecs
import re
from collections.abc import Mapping
from types import MappingProxyType

_ALIKE = (
    ("utf-8", "utf-8 utf8 unicode-1-1-utf-8"),
    ("utf-16-le", "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2"),
    ("utf-16-be", "utf-16be"),
    ("cp1252", "windows-1252 cp1252 iso-8859-1 iso8859-1 latin1 latin-1 l1 us-ascii ascii"),
    ("cp1254", "windows-1254 cp1254 iso-8859-9 latin5 l5"),
    ("cp874", "windows-874 iso-8859-11 tis-620"),
    ("iso-8859-8", "iso-8859-8 iso-8859-8-i hebrew visual logical"),
    ("cp866", "ibm866 cp866"),
    ("koi8-r", "koi8-r koi8 koi"),
    ("koi8-u", "koi8-u koi8-ru"),
    ("mac-roman", "macintosh x-mac-roman mac"),
    ("mac-cyrillic", "x-mac-cyrillic x-mac-ukrainian"),
    ("gb18030", "gb18030 gbk gb2312 gb-2312-80 x-gbk chinese"),
    ("big5hkscs", "big5 big5-hkscs x-x-big5 cn-big5"),
    ("euc-jp", "euc-jp x-euc-jp"),
    ("cp932", "shift-jis shift_jis sjis x-sjis ms932 windows-31j"),
    ("iso2022_jp", "iso-2022-jp"),
    ("cp949", "euc-kr korean ks-c-5601-1987 ks_c_5601-1987 windows-949"),
)
_NUMBERED = tuple(
    (f"iso-8859-{part}", f"iso-8859-{part} iso8859-{part}") for part in (2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16)
)
_WINDOWS = tuple((f"cp{page}", f"windows-{page} cp{page}") for page in (1250, 1251, 1253, 1255, 1256, 1257, 1258))

CODECS: Mapping[str, str] = MappingProxyType(
    {label: codec for codec, labels in (*_ALIKE, *_NUMBERED, *_WINDOWS) for label in labels.split()}
)
"""Python's codecs, by what an encoding is called, in small letters."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_META_WITHIN = 2_048

DECODED_BYTES = 64 << 10
"""How much is decoded at once: all other threads wait meanwhile."""


def decoded(body: bytes, said: str | None, *, html: bool) -> str:
    """The text of a body: by the mark at its beginning, by what was `said` of it, by what some HTML says of itself, or
    else as UTF-8. What can't be decoded is replaced.
    """
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return _text(body[len(mark) :], codec)
    codec = CODECS.get((said or "").strip().lower())
    if codec is None and html and (itself := _META.search(body[:_META_WITHIN])):
        codec = CODECS.get(itself[1].decode().lower(), "utf-8")
        codec = "utf-8" if codec.startswith("utf-16") else codec  # else this could not have been read
    return _text(body, codec or "utf-8")


def _text(body: bytes, codec: str) -> str:
    parts = (body[start : start + DECODED_BYTES] for start in range(0, len(body), DECODED_BYTES))
    return "".join(codecs.iterdecode(parts, codec, "replace"))
