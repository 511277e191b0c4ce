"""Our prompts against vLLM's own: token for token, but for the differences that have a name.

vLLM's render endpoint gives the tokens that its own Responses endpoint would send to the engine. A difference that
nobody has named fails here, and so does a named one that a case no longer shows.
"""

import re
from collections.abc import Iterator, Sequence

import httpx
import msgspec
import pytest

from service.api.request import read_create
from service.errors import InvalidRequest
from service.responses.prompt.build import Prompt, build_prompt
from service.responses.prompt.read import read_request
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.responses.requests import CONTEXT_TOKENS, ENVELOPES
from tests.support.responses.samples import as_json, sampled
from tests.support.vllm.corpus import CONTINUED, CORPUS, REFUSED_BY_US, REFUSED_BY_VLLM, Case, Continued, Refused
from tests.support.vllm.differences import READ, Ids, read, spelled, written
from tests.support.vllm.items import Json, output, user

pytestmark = pytest.mark.vllm

MODEL = "talker"
SECONDS = 20.0
"""The longest that a rendering may take: it is a matter of milliseconds, on a machine that does other things too."""


@pytest.fixture(scope="module")
def client(vllm_url: str) -> Iterator[httpx.Client]:
    """A client of vLLM's server."""
    with httpx.Client(base_url=vllm_url, timeout=SECONDS) as client:
        yield client


def rendered(client: httpx.Client, body: Json) -> Ids:
    """The prompt that vLLM makes of a request."""
    answer = client.post("/v1/responses/render", json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text[:1000]
    return answer.json()["token_ids"]


def ours(body: Json, day: str, chain: Sequence[StoredMessage] = ()) -> Prompt:
    """Our prompt of a request on top of a chain."""
    request = read_create(msgspec.json.encode({"model": MODEL, **body}), store=True)
    read = in_one_go(read_request(request, ENVELOPES))
    return in_one_go(build_prompt(read, request, chain, CONTEXT_TOKENS, day))


def day_of(prompt: Ids) -> str:
    """The day in a prompt's system message: vLLM's clock and time zone decide it, so it is taken from there."""
    (day,) = re.findall(r"\nCurrent date: (\d{4}-\d\d-\d\d)\n", spelled(prompt))
    return day


def assert_equal(theirs: Ids, mine: Sequence[int]) -> None:
    """Compare texts first, as their difference can be read."""
    assert spelled(theirs) == spelled(mine)
    assert theirs == list(mine)


@pytest.mark.parametrize("case", CORPUS.values(), ids=CORPUS.keys())
def test_a_prompt_is_vllm_s_but_for_named_differences(client: httpx.Client, case: Case) -> None:
    theirs = rendered(client, case.body)
    day = day_of(theirs)

    assert_equal(written(theirs, case.differences), ours(read(case.body, case.differences), day).tokens)
    for name in READ.keys() & case.differences:
        assert ours(read(case.body, [name]), day).tokens != ours(case.body, day).tokens, f"'{name}' no longer shows"


@pytest.mark.parametrize("case", CONTINUED.values(), ids=CONTINUED.keys())
def test_a_continued_prompt_is_what_vllm_makes_of_the_whole_conversation(client: httpx.Client, case: Continued) -> None:
    machine = sampled(case.sampled)
    replayed: list[Json] = as_json(machine.output)
    call_ids = [item["call_id"] for item in replayed if item["type"] == "function_call"]
    new = [output(text, call_id) for text, call_id in zip(case.outputs, call_ids, strict=True)]
    new += [user(case.said)] if case.said else []
    theirs = rendered(client, {**case.first, "input": [*case.first["input"], *replayed, *new]})
    day = day_of(theirs)
    chain = [*ours(case.first, day).messages, *machine.messages]

    assert_equal(written(theirs, case.differences), ours({**case.first, "input": new}, day, chain).tokens)


@pytest.mark.parametrize("case", REFUSED_BY_VLLM.values(), ids=REFUSED_BY_VLLM.keys())
def test_what_vllm_refuses_is_served_here(client: httpx.Client, case: Refused) -> None:
    for body in case.bodies:
        answer = client.post("/v1/responses/render", json={"model": MODEL, **body})

        assert answer.status_code == 400, body
        assert case.message in answer.text
        if "previous_response_id" not in body:
            assert len(ours(body, "2025-06-28").tokens) > 0


@pytest.mark.parametrize("case", REFUSED_BY_US.values(), ids=REFUSED_BY_US.keys())
def test_what_we_refuse_vllm_renders(client: httpx.Client, case: Refused) -> None:
    for body in case.bodies:
        assert len(rendered(client, body)) > 0
        with pytest.raises(InvalidRequest, match=re.escape(case.message)):
            ours(body, "2025-06-28")
