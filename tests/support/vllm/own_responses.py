"""The tokens behind vLLM's own `/v1/responses`, from the messages that it shows on request.

It keeps a conversation as messages and renders all of them for each request. In that rendering, calls of functions get
another header than the model sampled:

    sampled   assistant<|channel|>commentary to=functions.NAME <|constrain|>json
    rendered  assistant to=functions.NAME<|channel|>commentary json

which is openai-harmony's older form, and why that serves here. Whoever uses this checks the lengths against the usage.
"""

from collections.abc import Sequence
from typing import Any

from openai_harmony import Conversation, Message, RenderConversationConfig, Role

from service.harmony.tokens import END, RETURN
from tests.support.engine.prompts import call, final, message
from tests.support.oracles.harmony import Oracle

Json = dict[str, Any]


def prompt_of(oracle: Oracle, messages: Sequence[Json]) -> list[int]:
    """The prompt of a request: its messages without the analysis before the last answer, calls in the older form."""
    last = max((place for place, one in enumerate(messages) if one.get("channel") == "final"), default=-1)
    shown = [one for place, one in enumerate(messages) if one.get("channel") != "analysis" or place > last]
    older = [one | {"content_type": "json"} if one.get("content_type") else one for one in shown]
    return oracle.encoding.render_conversation_for_completion(
        Conversation(messages=[Message.from_dict(one) for one in older]),
        Role.ASSISTANT,
        RenderConversationConfig(auto_drop_analysis=False),
    )


def sampled_of(messages: Sequence[Json]) -> list[int]:
    """What the talker sampled for an output's messages: the prompt has already opened the first one."""
    _start, _role, *ids = [token for one in messages for token in _sampled(one)]
    return ids


def _sampled(one: Json) -> list[int]:
    text: str = one["content"][0]["text"]
    if one.get("recipient"):
        return call(one["recipient"].removeprefix("functions."), text)
    if one["channel"] == "final":
        return [*final(text)[:-1], RETURN]
    return [*message("assistant", text, one["channel"])[:-1], END]
