"""How many values an answer of a server has, before anything parses it: they cost time, however few bytes they are.

The `mcp` package checks each value of an answer on the event loop, in some 5 µs: 1 MiB of empty objects takes seconds.
So values are counted here as the bytes come. A text is one value, whatever stands in it. Never parse.
"""

MARKS = (b"{", b"[", b",")
"""What stands before every value but the first of an answer; the name of a member, and its value, count as one."""

_NEITHER = bytes(set(range(256)) - set(b'"\n'))


class Weight:
    """Counts the values of one answer, which comes in parts. Where it is of `events`, each is counted alone, and how
    many there are.
    """

    def __init__(self, values: int, events: int | None) -> None:
        """The most that there may be; `events` is None for an answer that has none."""
        self._values = values
        self._events = events
        self._seen = 0
        self._begun = bytearray()
        """The event that isn't complete, or all of the answer."""

    def refusal(self, part: bytes) -> str | None:
        """Why the answer is refused, if what this part of it completes is too much."""
        unread = max(len(self._begun) - 1, 0)
        self._begun += part.replace(b"\r", b"")  # no text of JSON has one, and a line may end with it
        end = -1 if self._events is None else self._begun.rfind(b"\n\n", unread)
        if self._events is None or end < 0:
            return None
        complete = bytes(self._begun[:end])
        del self._begun[: end + 2]
        self._seen += complete.count(b"\n\n") + 1
        if self._seen > self._events:
            return f"its answer has more than {self._events} events"
        heavy = _marks(complete) > self._values and any(map(self._is_heavy, complete.split(b"\n\n")))
        return self._too_many if heavy else None

    def refusal_at_end(self) -> str | None:
        """Why the answer is refused, if what came last, or all of it, is too much."""
        return self._too_many if self._is_heavy(bytes(self._begun)) else None

    @property
    def _too_many(self) -> str:
        return f"its answer has more than {self._values} values"

    def _is_heavy(self, text: bytes) -> bool:
        return _marks(text) > self._values and values_in(text, self._values) > self._values


def _marks(text: bytes) -> int:
    return sum(map(text.count, MARKS))


def values_in(text: bytes, most: int) -> int:
    """How many marks stand outside of texts; all marks, where what is a text can't be told."""
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    open_lines = b'"' in bare.translate(None, _NEITHER).replace(b'""', b"")  # in JSON a text ends in its line
    if open_lines or bare.count(b'"') > 4 * (most + 1):  # behind a mark stand a name and a text at most
        return _marks(text)
    return sum(map(_marks, bare.split(b'"')[::2]))
