"""The displays of the browser: pages are numbered through a conversation, and an answer cites them by these numbers."""

import msgspec
import pytest

from service.api.outcome import Outcome
from service.api.response import Message
from service.api.tools.builtin import callees
from service.features.browser.browser.page import Display, displays_in, page_of
from service.features.browser.citing import citing_of
from service.harmony import tokens
from service.responses.output.rules import Rules
from tests.core.responses.test_hosted_calls import WHOLE, Tools
from tests.support.responses import samples
from tests.support.responses.sampling import made

RULES = Rules(callees("browser", "{}"), parallel=4, hosted_calls=64)
TIDES = page_of("https://tides.example/", "Tides", "High water at ten.")
SHOWN = Outcome(
    "completed", "[0] Tides", shown={"action": {"type": "open_page", "url": TIDES.url}}, display=Display(TIDES)
)
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"id":"https://tides.example/"}<|call|>'
CITING = "<|channel|>final<|message|>At ten【0†L2】, and【1†L2】.<|return|>"
LINK = "([tides.example](https://tides.example/))"


@pytest.mark.parametrize("stored", [False, True], ids=["as they are", "as a queued plan has them"])
async def test_displays_number_on_behind_those_of_the_conversation(stored: bool) -> None:
    tools = Tools(SHOWN)
    rules = msgspec.structs.replace(RULES, displays=(Display(TIDES),))
    if stored:
        rules = msgspec.msgpack.decode(msgspec.msgpack.encode(rules), type=Rules)
    machine, response, _ = await made(samples.machine(rules, citing_of), WHOLE, OPEN, CITING, tools=tools)

    assert displays_in(tools.calls[0].displays) == (Display(TIDES),)
    message = response.output[-1]
    assert isinstance(message, Message)
    assert message.content[0].text == f"At ten {LINK}, and {LINK}."
    assert [note["start_index"] for note in message.content[0].annotations] == [7, 13 + len(LINK)]
    assert "【0†L2】" in tokens.decode(tokens.unpack(machine.messages[-1].tokens))
