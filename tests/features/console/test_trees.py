"""Trees over HTTP: a key's own, found by any id, filtered within bounds, and never by what another tenant has."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import msgspec
import pytest
from openai import OpenAI
from redis.asyncio import Redis

from service.features.catalogue.describing import KeptNewest, KeptSummary
from service.features.catalogue.excerpts import MARKS
from service.features.console import listing
from service.features.console.trees import (
    EXCERPT_CHARS,
    PIECE_CHARS,
    Box,
    GivenAnswer,
    TreeFilter,
    TreeSearch,
    excerpt_of,
    look_at,
    with_callers,
)
from store.catalogue.cataloguing import tree_at
from store.history.elsewhere import ArchiveReader, KeptQuery, KeptTree
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits, Tree, TreeListing
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served
from tests.support.store.servers import sweep
from tests.support.waiting import wait_until

UNKNOWN = "resp_" + "0" * 46 + "aa"
TENANT = "default"
TREES = "/console/api/trees"


@pytest.fixture
def own(beside: Callable[..., Served]) -> Served:
    """A service with two shards that has no trees yet."""
    return beside(shards=2)


def trees(http: httpx.Client, **parameters: Any) -> dict[str, Any]:
    answer = http.get(TREES, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(client: OpenAI, text: Any, parent: str | None = None, **options: Any) -> str:
    """Ask for a response; its id."""
    return client.responses.create(model=MODEL, input=text, previous_response_id=parent, **options).id


def test_a_tree_is_shown_by_its_newest_turn(own: Served) -> None:
    client, http = own.client(), own.http()
    root = said(client, "My name is Ada.")
    leaf = said(client, "What is my name?", root, metadata={"a": "1"})
    (tree,) = trees(http)["data"]
    now = time.time()
    first, last = tree.pop("first_used_at"), tree.pop("last_used_at")
    assert now - 60 < last <= now
    assert client.responses.retrieve(root).created_at <= first <= last
    assert first == http.get(f"/console/api/turns/{root}").json()["created_at"]
    newest = tree.pop("newest")
    assert tree == {
        "object": "console.tree",
        "id": root,
        "title": "My name is Ada.",
        "turns": 2,
        "turns_complete": True,
        "under_way": 0,
        "conversation": None,
        "metadata": {"a": "1"},
        "found": None,
        "in_memory": True,
    }
    assert (newest["id"], newest["kind"], newest["status"], newest["model"]) == (leaf, "response", "completed", MODEL)
    assert (newest["input"], newest["output"]) == ("What is my name?", "Your name is Ada.")
    usage = client.responses.retrieve(leaf).usage
    assert usage is not None
    assert (newest["input_tokens"], newest["output_tokens"]) == (usage.input_tokens, usage.output_tokens)


ASKED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
DENIED = ASKED | {"approval_request_id": "mcpr_2", "approve": False}
WORDS = {"role": "user", "content": "Go on."}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([ASKED], "Approved"),
        ([DENIED], "Denied"),
        ([DENIED | {"reason": "Not\n today."}], "Denied: Not today."),
        ([ASKED, DENIED], "Approved, Denied"),
        ([ASKED, WORDS], "Go on."),
        ([ASKED | {"approve": 7, "reason": 7}], "Denied"),
        ([ASKED | {"approval_request_id": 7}], ""),
    ],
)
def test_answers_to_requests_for_approval_are_told_and_are_the_words_of_a_turn_that_has_no_others(
    items: list[dict[str, Any]], words: str
) -> None:
    assert excerpt_of(b"{}", msgspec.json.encode(items)).input == words


def test_each_request_is_answered_once_also_by_its_call_where_a_client_left_the_answer_out() -> None:
    made: dict[str, Any] = {"type": "mcp_call", "name": "add", "arguments": "{}"}
    items = [made | {"approval_request_id": "mcpr_0"}, made | {"approval_request_id": None}, DENIED]
    output = [made | {"approval_request_id": "mcpr_2"}, ASKED]
    told = excerpt_of(msgspec.json.encode({"output": output}), msgspec.json.encode(items)).answers
    answers = [("mcpr_0", "Approved"), ("mcpr_2", "Denied"), ("mcpr_1", "Approved")]
    assert told == [GivenAnswer(request, words) for request, words in answers]


CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "24 degrees"}
SHELL = {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "a.txt\n", "stderr": ""}]}


@pytest.mark.parametrize(
    ("items", "words", "names"),
    [
        ([OUTPUT], "look → 24 degrees", ["look"]),
        ([OUTPUT, SHELL], "look → 24 degrees, result → a.txt", ["look", "result"]),
        ([OUTPUT, WORDS], "Go on.", ["look"]),
        ([CALL | {"name": "other"}, OUTPUT], "look → 24 degrees", ["look"]),
        ([OUTPUT | {"call_id": 7}], "", []),
    ],
)
def test_a_turn_that_begins_with_the_output_of_a_call_says_of_which(
    items: list[dict[str, Any]], words: str, names: list[str]
) -> None:
    excerpt = excerpt_of(b"{}", msgspec.json.encode(items)).with_names({"c": "look"})
    assert (excerpt.input, [each.name for each in excerpt.answers]) == (words, names)


def test_an_excerpt_has_no_marks_of_markdown() -> None:
    shown = {
        "## A *plan*\n\n> for **two**": "A plan for two",
        "```sql\nSELECT 2*3*4, a_b_c, 2**3\n```": "SELECT 2*3*4, a_b_c, 2**3",
        "See [the guide](https://example.org) ![map](x.png) and `code`.": "See the guide map and code.",
        "| A | B |\n| --- | ---: |\n| 1 | [2] |": "| A | B | | 1 | [2] |",
        "---": "---",
        "# of items": "of items",
        "#hash a * b * c": "#hash a * b * c",
    }
    for text, words in shown.items():
        assert excerpt_of(b"{}", msgspec.json.encode([{"role": "user", "content": text}])).input == words, text


@pytest.mark.parametrize("piece", ["[", "*", "**a", "![", "[a](", "> ", "- ", "`", "*a ", "| "])
def test_marks_without_end_take_no_square_of_their_length(piece: str) -> None:
    begun = time.perf_counter()
    MARKS.sub(r"\1\3", piece * 200_000)
    assert time.perf_counter() - begun < 2


def test_a_tree_tells_which_turn_gives_the_output_of_a_call_and_whose(own: Served) -> None:
    client, http = own.client(), own.http()
    tool: Any = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
    asked = client.responses.create(model=MODEL, input="Use the look_up tool.", tools=[tool])
    call: Any = next(item for item in asked.output if item.type == "function_call")
    given = said(client, [{"type": "function_call_output", "call_id": call.call_id, "output": "**24**"}], asked.id)
    _, turn = http.get(f"{TREES}/{given}").json()["turns"]
    assert turn["answers"] == [{"to": call.call_id, "words": "24", "name": "look_up"}]
    assert turn["input"] == trees(http)["data"][0]["newest"]["input"] == "look_up → 24"


def test_a_list_says_whose_output_a_newest_turn_gives_wherever_the_call_was_made(own: Served) -> None:
    client, http = own.client(), own.http()
    tool: Any = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
    first = said(client, "My name is Ada.")
    asked = client.responses.create(
        model=MODEL, input="Use the look_up tool.", tools=[tool], previous_response_id=first
    )
    call: Any = next(item for item in asked.output if item.type == "function_call")
    said(client, [{"type": "function_call_output", "call_id": call.call_id, "output": "24"}], asked.id)
    assert trees(http)["data"][0]["newest"]["input"] == "look_up → 24"


def test_a_tree_is_retrieved_by_any_id_within_it(own: Served) -> None:
    client, http = own.client(), own.http()
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    leaf, fork = said(client, "What is my name?", first.id), said(client, "Count to 2.", first.id)
    items = client.responses.input_items.list(leaf).data
    told = http.get(f"{TREES}/{first.id}").json()
    assert [(turn["id"], turn["parent"], turn["depth"], turn["output"]) for turn in told["turns"]] == [
        (first.id, None, 1, first.output_text[:EXCERPT_CHARS]),
        (leaf, first.id, 2, "Your name is Ada."),
        (fork, first.id, 2, "1 2"),
    ]
    assert (told["turns_complete"], told["excerpts_complete"], told["asked"]) == (True, True, first.id)
    for id in (leaf, fork, first.output[0].id, items[0].id, f"call_{leaf[5:]}0001"):
        answer = http.get(f"{TREES}/{id}").json()
        assert answer["turns"] == told["turns"]
        assert answer["id"] == first.id


def test_filters_find_the_trees_that_are_as_asked_for(own: Served) -> None:
    client, http = own.client(), own.http()
    plain = said(client, "My name is Ada.")
    marked = said(client, "My name is Ada.", metadata={"a": "1", "b": "2"})
    cut = said(client, "Tell me a story.", max_output_tokens=16)
    for parameters, expected in (
        ({"status": "completed"}, [marked, plain]),
        ({"status": "incomplete"}, [cut]),
        ({"model": "other"}, []),
        ({"metadata[a]": "1"}, [marked]),
        ({"metadata[a]": "1", "metadata[b]": "3"}, []),
        ({"since": int(time.time()) + 100}, []),
        ({"until": int(time.time()) - 100}, []),
    ):
        page = trees(http, **parameters)
        assert [tree["id"] for tree in page["data"]] == expected, parameters
        assert (page["has_more"], page["searched"]["stopped"]) == (False, None)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("after=x", "after"),
        ("after=0-1-" + 50 * "0" + "-9999999999999999999-~", "after"),
        ("limit=0", "limit"),
        ("status=done", "status"),
        ("until=nan", "until"),
        ("metadata=1", "metadata"),
        ("text=%20", "text"),
        ("text=%1c", "text"),
        ("id=resp_00", "id"),
    ],
)
def test_what_a_list_does_not_take_is_refused_by_name(service: Served, query: str, param: str) -> None:
    answer = service.http().get(f"{TREES}?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_all_that_is_kept_is_listed_once_wherever_a_page_ends(
    beside: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_AT_ONCE", 2)
    service = beside(shards=2, max_responses=8, archive_url="sqlite", archive_after_seconds=0)
    ids = {
        said(service.client(), f"Count to {number}.") for number in range(2, 19)
    }  # more than both shards have room for

    def listed(limit: int) -> dict[str, bool]:
        found, query = dict[str, bool](), dict[str, str | int]()
        while True:
            page = trees(service.http(), limit=limit, **query)
            assert not found.keys() & {tree["id"] for tree in page["data"]}
            assert page["data"] or not page["has_more"]
            found |= {tree["id"]: tree["in_memory"] for tree in page["data"]}
            if not page["has_more"]:
                return found
            query = {"after": page["after"]}

    wait_until(lambda: listed(100).keys() == ids, otherwise="not all is listed")
    whole = listed(100)
    assert set(whole.values()) == {True, False}
    for tree in trees(service.http(), limit=100)["data"]:
        assert tree["first_used_at"] == tree["newest"]["created_at"]
    for limit in (1, 2, 3, 4):
        assert list(listed(limit).items()) == list(whole.items())


class KeptAlso(ArchiveReader):
    """An archive of which memory has all but the last ten, each read since and not changed."""

    lists = True

    async def find_kept(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        uses = range(min(query.before[0], 5_000) - 1, -1, -1)[: query.limit]
        return [KeptTree("00aa", used, "", "", b"", here=9_000 * (used >= 10)) for used in uses]


async def test_a_page_is_full_however_many_were_read_and_not_changed(filled: ConversationHistoryStore) -> None:
    filled.elsewhere = KeptAlso()
    found, more = await listing.KeptTrees(filled, TENANT, TreeFilter(), listing.ListPlace()).some(10, 0)
    assert ([tree.used for tree in found], more) == (list(range(9, -1, -1)), False)


class KeptAll(ArchiveReader):
    """An archive that has trees of memory as they were used there, and one that was used last of all."""

    lists = True
    are_here = True

    def __init__(self, trees: Sequence[Tree]) -> None:
        first, uses = trees[0].place, {tree.place.digits: tree.used for tree in trees}
        self._uses = {**uses, first.digits[:-1] + "x": first.score + 1}

    async def find_kept(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        shown = msgspec.json.encode(KeptSummary(None, 0, 1, None, KeptNewest("resp_00", "completed", 0, None)))
        kept = [
            KeptTree(tree_at(root), used, root, root, shown, here=used * (self.are_here and not root.endswith("x")))
            for root, used in self._uses.items()
        ]
        kept.sort(key=lambda tree: tree.place, reverse=True)
        return [tree for tree in kept if tree.place < query.before][: query.limit]


async def test_trees_that_leave_memory_between_two_pages_are_on_the_second(filled: ConversationHistoryStore) -> None:
    trees = [tree for _, tree in await TreeListing(filled, TENANT).some(10) if tree]
    archive = filled.elsewhere = KeptAll(trees)
    page = await listing.page_of(filled, TENANT, TreeFilter(), "", None, 10)
    listed = [tree.id for tree in page.data]
    archive.are_here = False
    for tree in trees:
        await filled.forget_tree(TENANT, tree.id)
    assert page.after is not None
    page = await listing.page_of(filled, TENANT, TreeFilter(), "", listing.read_place(page.after), 10)
    listed += [tree.id for tree in page.data]
    assert len(listed) == len(set(listed))
    assert {tree.id for tree in trees} < set(listed)


class Leaving(TreeListing):
    """A list of trees that leave memory as soon as they are listed."""

    async def some(self, most: int) -> list[tuple[ScoredDigits, Tree | None]]:
        found = await super().some(most)
        for tree in (tree for _, tree in found if tree):
            await self._history.forget_tree(TENANT, tree.id)
        return found


class Asked(ArchiveReader):
    """An archive that notes of which turns somebody wants to bring them back."""

    def __init__(self) -> None:
        self.for_turns: list[str] = []

    async def bring_back(self, tenant: str, digits: str) -> bool:
        self.for_turns.append(digits)
        return False


async def test_a_search_brings_nothing_back_that_leaves_memory_meanwhile(
    filled: ConversationHistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = filled.elsewhere = Asked()
    monkeypatch.setattr("service.features.console.trees.TreeListing", Leaving)
    page = await TreeSearch(filled, TENANT, TreeFilter(words=("words",)), None, Box()).page(5)
    assert (page.data, archive.for_turns) == ([], [])


def test_a_tree_of_a_stranger_is_exactly_as_unknown_as_one_that_never_was(tenants: Served) -> None:
    id = said(tenants.client(ACME_KEY), "My name is Ada.")
    globex = tenants.http(GLOBEX_KEY)
    foreign, unknown = globex.get(f"{TREES}/{id}"), globex.get(f"{TREES}/{UNKNOWN}")
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.content.replace(id.encode(), UNKNOWN.encode()) == unknown.content
    assert id not in globex.get(TREES).text
    assert id in tenants.http(ACME_KEY).get(TREES).text
    for path in (TREES, f"{TREES}/{id}"):
        assert tenants.http().get(path).status_code == 401
        assert tenants.http("wrong").get(path).status_code == 401


def found(http: httpx.Client, **parameters: Any) -> list[tuple[str, str]]:
    """The turns that are found, with the texts around the words."""
    page = trees(http, **parameters)
    assert (page["has_more"], page["searched"]["unread"]) == (False, 0)
    return [(tree["found"]["id"], tree["found"]["text"]) for tree in page["data"]]


def test_words_are_found_in_any_turn_of_any_branch_however_they_are_written(own: Served) -> None:
    client, http = own.client(), own.http()
    root = said(client, "My name is Ada.")
    fork = said(client, "Die Straße nach Zürich\nist lang.", root)
    said(client, "Count to 2.", said(client, "Count to 3.", root))
    other = said(client, "My name is Bob.", instructions="Ada is no word of the conversation.")
    assert found(http, text="ADA") == [(root, "My name is Ada.")]
    assert found(http, text="zÜRICH strasse") == [(fork, "Die Straße nach Zürich ist lang.")]
    assert found(http, text="name") == [(other, "My name is Bob."), (root, "My name is Ada.")]
    assert found(http, text="name zürich") == [], "all words are of one turn"
    assert found(http, text="output_text") == [], "what isn't written is no word"
    assert found(http, text="ada", since=int(time.time()) + 100) == []
    (tree,) = trees(http, text="zürich")["data"]
    assert (tree["id"], tree["title"], tree["turns"]) == (root, "My name is Ada.", 4), "the whole tree is shown"


def test_the_text_around_found_words_has_no_marks_of_markdown(own: Served) -> None:
    said(own.client(), "Wait for the **grace period**:\n\n```sh\nkeys rotate --grace 24h\n```")
    assert [text for _, text in found(own.http(), text="grace")] == [
        "Wait for the grace period: keys rotate --grace 24h"
    ]


@pytest.mark.parametrize("word", ["Straße", "İstanbul", "ﬁnden"])
def test_the_text_around_a_word_has_it_however_long_it_is_without_case(word: str) -> None:
    items = msgspec.json.encode([{"role": "user", "content": f"{'İ ' * 300}{word} {'and more ' * 30}"}])
    looking = look_at(TreeFilter(words=(word.casefold(),)), b"{}", items, set())
    with pytest.raises(StopIteration) as end:
        next(looking)
    assert word in end.value.value


def test_nothing_deleted_is_found(own: Served) -> None:
    client, http = own.client(), own.http()
    gone = said(client, "My secret is alpha.")
    kept = said(client, "Hello.", gone, metadata={"a": "1"})
    whole = said(client, "My secret is beta.")
    conversation = client.conversations.create(
        items=[{"role": "user", "content": "My secret is gamma."}, {"role": "user", "content": "I like tea."}]
    ).id
    items = client.conversations.items.list(conversation, order="asc").data
    assert len(found(http, text="secret")) == 3
    client.responses.delete(gone)
    http.delete(f"/v1/responses/{whole}", params={"tree": "true"})
    client.conversations.items.delete(str(items[0].id), conversation_id=conversation)
    assert found(http, text="secret") == []
    assert [text for _, text in found(http, text="tea")] == ["I like tea."]
    assert found(http, **{"metadata[a]": "1"}) == [(kept, "")]
    assert found(http, id=gone[:25]) == [(kept, "")], "its tree begins so, and is there"
    assert found(http, id=gone[:-2]) == []


def test_a_tenant_finds_nothing_of_another_by_words_metadata_or_ids(tenants: Served) -> None:
    id = said(tenants.client(ACME_KEY), "My word is xylophone.", metadata={"only": "acme"})
    acme, globex = tenants.http(ACME_KEY), tenants.http(GLOBEX_KEY)
    for parameters in ({"text": "xylophone"}, {"metadata[only]": "acme"}, {"id": id[:25]}):
        assert [tree["id"] for tree in trees(acme, **parameters)["data"]] == [id]
        assert trees(globex, **parameters)["data"] == []


@pytest.fixture
async def filled(redis_url: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store with 60 trees, of which every tenth is of the model `rare`."""
    store = ConversationHistoryStore(connect(redis_url), prefix="console")
    for number in range(60):
        response = {"model": "rare" if number % 10 == 0 else "usual", "output": []}
        items = [{"role": "user", "content": f"{response['model']} words"}]
        shown, told = msgspec.json.encode(response), msgspec.json.encode(items)
        await store.append(TENANT, Turn(store.new_id(), None, Status.COMPLETED, (), shown, told))
    yield store
    await store.close()
    redis = Redis.from_url(redis_url)
    await sweep(redis, "console:")
    await redis.aclose()


@pytest.mark.parametrize(
    ("wanted", "box", "stopped"),
    [
        (TreeFilter(model="rare"), Box(trees=20, seconds=60.0), "rows"),
        (TreeFilter(model="rare"), Box(seconds=0.0), "time"),
        (TreeFilter(words=("rare", "words")), Box(bytes=1, seconds=60.0), "bytes"),
        (TreeFilter(words=("rare", "words")), Box(seconds=60.0), None),
    ],
)
async def test_a_search_says_what_it_looked_at_and_goes_on_where_it_stopped(
    filled: ConversationHistoryStore, wanted: TreeFilter, box: Box, stopped: str | None
) -> None:
    found, after, pages, seen = [], None, 0, 0
    while True:
        search = TreeSearch(filled, TENANT, wanted, after, box)
        page = await search.page(20)
        assert page.searched.stopped == (stopped if page.has_more else None)
        found += [tree.id for tree in page.data]
        pages, seen = pages + 1, seen + page.searched.trees
        if not page.has_more:
            break
        after = search.last
    assert (len(found), len(set(found)), seen) == (6, 6, 60)
    assert (pages > 1) == (stopped is not None)


def test_others_run_between_the_pieces_of_a_long_text() -> None:
    wanted, pieces = TreeFilter(words=("ada",)), 20
    long = msgspec.json.encode([{"role": "user", "content": "x" * (pieces * PIECE_CHARS - 1) + "Ada"}])
    assert sum(1 for _ in look_at(wanted, b"{}", long, set())) >= pieces - 1


async def test_an_output_whose_call_no_shard_here_can_have_made_has_no_name(filled: ConversationHistoryStore) -> None:
    given = {"type": "function_call_output", "call_id": f"call_{'f' * 52}", "output": "24"}
    excerpt = excerpt_of(b"{}", msgspec.json.encode([given]))
    assert await with_callers(filled, TENANT, {"a": excerpt}) == {"a": excerpt}
