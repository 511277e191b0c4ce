"""A stream of chat completion chunks, or of completions, to the one answer that they are: for servers that notice a
hang-up only where they stream. Pure.
"""

from typing import Any

import msgspec

from service.engine.port import EngineError

MAX_STREAM_BYTES = 64 << 20
"""The longest stream that is made one answer of: a context of tokens, with alternatives for each."""

_DATA = b"data: "
_DONE = b"[DONE]"


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    type: str = "function"
    function: _Function = _Function()


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] = []


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_CHUNK = msgspec.json.Decoder(_Chunk)
_OTHERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Answer:
    """One choice."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}
        self._calls: dict[int, list[_Call]] = {}
        self._logprobs: list[msgspec.Raw] = []
        self._finish: str | None = None

    def add(self, choice: _Choice) -> None:
        """Add what a chunk has of it."""
        self._finish = choice.finish_reason or self._finish
        self._logprobs += (choice.logprobs and choice.logprobs.content) or []
        delta = choice.delta or _Delta()
        for name, said in (
            ("text", choice.text),
            ("content", delta.content),
            ("reasoning_content", delta.reasoning_content),
        ):
            if said is not None:
                self._said.setdefault(name, []).append(said)
        for call in delta.tool_calls:
            self._calls.setdefault(call.index, []).append(call)

    def whole(self, index: int) -> dict[str, Any]:
        """All of it."""
        said = {name: "".join(pieces) for name, pieces in self._said.items()}
        choice: dict[str, Any] = {"index": index, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        if "text" in said:
            return choice | said
        message: dict[str, Any] = {"role": "assistant", "content": None, **said}
        if self._calls:
            message["tool_calls"] = [_joined(pieces) for _, pieces in sorted(self._calls.items())]
        return choice | {"message": message}


def _joined(pieces: list[_Call]) -> dict[str, Any]:
    name = "".join(each.function.name or "" for each in pieces)
    arguments = "".join(each.function.arguments or "" for each in pieces)
    id = next((each.id for each in pieces if each.id is not None), None)
    return {"id": id, "type": pieces[0].type, "function": {"name": name, "arguments": arguments}}


class Whole:
    """The answer that a stream is."""

    def __init__(self, name: str) -> None:
        """`name` is what the kind of server is called."""
        self._name = name
        self._answers: dict[int, _Answer] = {}
        self._others: dict[str, msgspec.Raw] = {}
        self._bytes = 0

    def feed(self, events: bytes) -> None:
        """Add whole events. Raises EngineError."""
        self._bytes += len(events)
        if self._bytes > MAX_STREAM_BYTES:
            raise EngineError(f"the {self._name} server sent more than {MAX_STREAM_BYTES} bytes of one answer")
        for line in events.splitlines():
            if line.startswith(_DATA) and not line.endswith(_DONE):
                self._add(line[len(_DATA) :])

    def _add(self, payload: bytes) -> None:
        try:
            chunk, others = _CHUNK.decode(payload), _OTHERS.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineError(f"the {self._name} server sent something that is no chunk") from error
        for choice in chunk.choices:
            self._answers.setdefault(choice.index, _Answer()).add(choice)
        others.pop("choices", None)
        self._others |= others

    def answer(self) -> bytes:
        """The answer, once the stream has ended."""
        choices = [answer.whole(index) for index, answer in sorted(self._answers.items())]
        kind = "chat.completion" if any("message" in choice for choice in choices) else "text_completion"
        return msgspec.json.encode({**self._others, "object": kind, "choices": choices})
