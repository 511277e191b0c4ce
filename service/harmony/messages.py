"""Harmony messages as JSON: the `input_messages` and `output_messages` of a response.

The shape is that of openai-harmony's `Message.to_dict`, so `Message.from_dict` reads it, and renders messages of this
service to the very same tokens again. Every content is text, the system message's and the developer's too: a prompt is
shown as the model read it. Never show a call id or a token id here: Harmony has none.
"""

from array import array
from collections.abc import Generator, Sequence
from typing import Any

from service.harmony import tokens
from service.harmony.header import Header, read_header
from service.harmony.tokens import CALL, END, MESSAGE, RETURN, START
from store.turn import StoredMessage

TOKENS_A_STEP = 65_536
"""The tokens that are decoded before others get a turn: a few milliseconds."""

_CLOSING = frozenset((END, CALL, RETURN))


def harmony_message(message: StoredMessage) -> dict[str, Any]:
    """A kept message as JSON. It isn't decoded in steps: a single message of an answer is short enough.

    Only a tool's name is one of Harmony's; all other names are the store's.
    """
    return _as_dict(message, message.name if message.role == "tool" else None, text_of(message))


def harmony_messages(prompt: "array[int]") -> Generator[None, None, list[dict[str, Any]]]:
    """Every message of a prompt, the system's and the developer's among them, read from its tokens.

    Yields between pieces of work. The `<|start|>assistant` at the end, which the model goes on from, is no message.
    """
    shown: list[dict[str, Any]] = []
    unbroken = 0
    for ids in _split(prompt):
        try:
            mark = ids.index(MESSAGE)
        except ValueError:
            continue
        header, _ = read_header(ids[1:mark], role_given=False, marked=True)
        shown.append(_as_dict(header, header.name, _text(ids[mark + 1 :])))
        unbroken += len(ids)
        if unbroken > TOKENS_A_STEP:
            unbroken = 0
            yield
    return shown


def _split(prompt: "array[int]") -> Generator["array[int]"]:
    """The messages of a prompt: START stands nowhere but at their beginnings."""
    begin = 0
    while begin < len(prompt):
        try:
            end = prompt.index(START, begin + 1)
        except ValueError:
            end = len(prompt)
        yield prompt[begin:end]
        begin = end


def text_of(message: StoredMessage) -> str:
    """The text of a kept message's content."""
    ids = tokens.unpack(message.tokens)
    return _text(ids[ids.index(MESSAGE) + 1 :])


def _text(ids: Sequence[int]) -> str:
    """The text of a content, without the id that closes it."""
    return tokens.decode(ids[:-1] if ids and ids[-1] in _CLOSING else ids)


def _as_dict(message: StoredMessage | Header, name: str | None, text: str) -> dict[str, Any]:
    """A message as `to_dict` has it: with `name` in any case, and with the other members where there are any."""
    optional = {key: getattr(message, key) for key in ("channel", "recipient", "content_type")}
    return {
        "role": message.role,
        "name": name,
        "content": [{"type": "text", "text": text}],
        **{key: value for key, value in optional.items() if value is not None},
    }
