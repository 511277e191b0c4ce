"""The o200k_harmony vocabulary: ids of the special tokens, text to ids and ids to bytes.

Text always passes `encode`, which knows no special tokens: a user's text stays ordinary text, so nobody can forge
a turn. Special ids are placed by the renderer alone. Encoding uses bpe-openai, which is linear where
tiktoken and openai-harmony are quadratic, and whose package carries the ranks, so nothing is ever downloaded. Only its
compiled module is loaded: the Python around it reads three vocabularies into dicts, 0.8 s and 75 MB that nobody needs.

Never encode a long untrusted text in one call on the event loop: use `encode_steps`, which yields between slices.
"""

import gzip
import re
from array import array
from binascii import a2b_base64
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

START = 200006
END = 200007
MESSAGE = 200008
CHANNEL = 200005
CONSTRAIN = 200003
RETURN = 200002
CALL = 200012
ASSISTANT = 173781
"""The ordinary token "assistant", which opens every generation after START."""

FIRST_SPECIAL = 199998
LAST_ORDINARY = FIRST_SPECIAL - 1
LAST_LEGAL = 201087
BYTES_A_TOKEN = 4
STOPS = (RETURN, CALL)
"""The tokens that end an assistant action; END closes a message only."""
ENDOFTEXT = 199999
ENDS = (*STOPS, ENDOFTEXT)
"""The tokens at which an engine stops: a model may lose its way and end as if it had read a document."""

_MARKS = {
    FIRST_SPECIAL: "<|startoftext|>",
    ENDOFTEXT: "<|endoftext|>",
    RETURN: "<|return|>",
    CONSTRAIN: "<|constrain|>",
    CHANNEL: "<|channel|>",
    START: "<|start|>",
    END: "<|end|>",
    MESSAGE: "<|message|>",
    CALL: "<|call|>",
}
"""The special ids that mean something; the others up to LAST_LEGAL are reserved."""

SLICE_CHARS = 32_768
"""The most text encoded without yielding: about 4 ms for Chinese, 1 ms for English prose."""

BOUNDARY_SEARCH_CHARS = 4096
"""The characters before a slice's end in which a safe place to cut is looked for."""

_BOUNDARY = re.compile(r"""[^\W_](?=[\s"(),.:;?!\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])""")
"""A letter or digit before white space or punctuation, Latin or Chinese: o200k's pre-tokenizer always splits there,
as no run of letters or digits goes past it. (An apostrophe would not do: "it's" is one piece.)
"""
LONGEST_RUN_CHARS = 131_072
"""The longest stretch without a place to cut: some 20 ms, and no text that anybody reads has one."""

BLOCK_LINES = 64
"""The lines of the vocabulary's file that are searched for one of them: 4 µs, once for an id."""

PACKAGE = "bpe_openai"
VOCABULARY = "o200k_base"


def _folder() -> str:
    """The folder of the package."""
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(f"no module named {PACKAGE!r}; install the package again", name=PACKAGE)
    return package.submodule_search_locations[0]


def _load() -> Callable[[str], list[int]]:
    """The compiled module's way to encode, which takes special tokens literally. It raises UnicodeEncodeError for half
    a surrogate pair.
    """
    found = PathFinder.find_spec("_bindings", [_folder()])
    if found is None or found.loader is None:
        raise ModuleNotFoundError(f"{PACKAGE} lacks its compiled module; install the package again", name=PACKAGE)
    bindings = module_from_spec(found)
    found.loader.exec_module(bindings)
    return bindings.tokenizer_for_encoding(VOCABULARY).encode


_encode = _load()


class TooManyTokens(Exception):
    """A text has more tokens than the limit it was encoded under."""


class RunTooLong(Exception):
    """A text goes on and on without white space or punctuation."""

    def __init__(self) -> None:
        super().__init__(
            f"it has more than {LONGEST_RUN_CHARS} characters in a row without a word's end; break them up"
        )


def encode(text: str) -> list[int]:
    """Token ids of `text`, special tokens taken literally. Holds the GIL; for long texts see `encode_steps`.

    Half a surrogate pair, which has no bytes, is U+FFFD.
    """
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def encode_steps(text: str, limit: int) -> Generator[None, None, "array[int]"]:
    """Encode `text` slice by slice, yielding in between so that the caller can let others run.

    A list has 36 bytes for an id, and many may be encoded at a time: the ids are in an array, 4 bytes each.

    The slices are cut only where the pre-tokenizer always splits, so the ids equal those of `encode(text)`. A window
    without such a place grows up to the next one. Raises TooManyTokens past `limit` ids, and RunTooLong.
    """
    ids: array[int] = array("I")
    start = 0
    while start < len(text):
        end = _cut(text, start)
        ids.extend(encode(text[start:end]))
        if len(ids) > limit:
            raise TooManyTokens
        start = end
        if start < len(text):
            yield
    return ids


def _cut(text: str, start: int) -> int:
    """The end of the slice that begins at `start`: the last safe boundary in the window, or one further on."""
    end = start + SLICE_CHARS
    if end >= len(text):
        return len(text)
    boundaries = [match.end() for match in _BOUNDARY.finditer(text, max(start, end - BOUNDARY_SEARCH_CHARS), end + 1)]
    if boundaries:
        return boundaries[-1]
    match = _BOUNDARY.search(text, end, start + LONGEST_RUN_CHARS)
    if match:
        return match.end()
    if len(text) - start > LONGEST_RUN_CHARS:
        raise RunTooLong
    return len(text)


class TokenBytes(dict[int, bytes]):
    """The bytes of ids, each looked up in the vocabulary's file when it is first asked for. Most never are, and all
    together take 20 MB. Special and unassigned ids are empty.

    The file has a line for each id, with its bytes as base64 and the id, in the order of the ids.
    """

    def __init__(self, lines: bytes) -> None:
        """Raises ValueError where the lines have another form."""
        super().__init__()
        self._lines, self._count = lines, lines.count(b"\n")
        if not lines.endswith(b" %d\n" % (self._count - 1)):
            raise ValueError("the last line has not the last id")
        self._starts = array("I", [0])
        """The beginning of each block of BLOCK_LINES lines."""
        for first in range(BLOCK_LINES, self._count, BLOCK_LINES):
            end = b" %d\n" % (first - 1)
            self._starts.append(lines.index(end, self._starts[-1]) + len(end))

    def __missing__(self, id: int) -> bytes:
        """Look an id up. Raises IndexError for one that can't exist."""
        if not 0 <= id <= LAST_LEGAL:
            raise IndexError(id)
        word = b""
        if id < self._count:
            block, place = divmod(id, BLOCK_LINES)
            start = self._starts[block]
            end = self._starts[block + 1] if block + 1 < len(self._starts) else len(self._lines)
            word = a2b_base64(self._lines[start:end].split(b"\n", place + 1)[place].partition(b" ")[0])
        self[id] = word
        return word


@cache
def byte_table() -> TokenBytes:
    """The bytes of every id up to LAST_LEGAL, by id. Made once, 0.02 s."""
    try:
        return TokenBytes(_lines())
    except ValueError as error:
        raise ValueError(f"{PACKAGE} stores its vocabulary in another form; install the locked version") from error


def vocabulary() -> list[bytes]:
    """The bytes of all ordinary ids, in their order: 0.07 s, for callers that need each of them."""
    return list(map(a2b_base64, _lines().split()[::2]))


def _lines() -> bytes:
    with open(f"{_folder()}/data/{VOCABULARY}.tiktoken.gz", "rb") as packed:
        return gzip.decompress(packed.read())


def decode(ids: Iterable[int]) -> str:
    """The text of ordinary `ids`; special ids vanish, bytes that are not UTF-8 become U+FFFD."""
    table = byte_table()
    return b"".join([table[i] for i in ids if 0 <= i <= LAST_LEGAL]).decode("utf-8", "replace")


def mark_of(id: int) -> str | None:
    """The name of a special id; None for any other id."""
    if FIRST_SPECIAL <= id <= LAST_LEGAL:
        return _MARKS.get(id, f"<|reserved_{id}|>")
    return None


def pack(ids: Iterable[int]) -> bytes:
    """Ids as little-endian u32, the form in which messages are stored and prompts are joined."""
    return array("I", ids).tobytes()


def unpack(packed: bytes) -> "array[int]":
    """The ids of `pack`'s bytes."""
    ids: array[int] = array("I")
    ids.frombytes(packed)
    return ids


def behind_the_next_mark(ids: Sequence[int], place: int) -> int:
    """The place behind the first special id from `place` on, or the end where there is none."""
    if place < len(ids) and max(ids[place:]) < FIRST_SPECIAL:
        return len(ids)
    return next((at + 1 for at in range(place, len(ids)) if ids[at] >= FIRST_SPECIAL), len(ids))
