"""The port of catalogues, for every backend: each test says one thing that all above relies on."""

import asyncio

import pytest

from store.catalogue import rows
from store.catalogue.catalogue import Catalogue, StoredRow, place_of
from store.catalogue.postgres import FORMAT
from store.errors import ArchiveRefused
from store.history.elsewhere import FIRST, KeptQuery, KeptTree
from tests.support.archive.catalogues import catalogue_at, found, put, row_of
from tests.support.archive.opened import Place
from tests.support.store.sample import TENANT

TREE, OTHER = "00aa", "globex"


async def keep(catalogue: Catalogue, tree: str, words: str = "", *facts: str, used: int = 1, to: str = TENANT) -> None:
    """Put a row whatever is there."""
    version = (await catalogue.row(to, tree)).version
    assert await put(catalogue, tree, row_of(words, *facts, used=used), version, to)


async def test_a_row_is_put_only_in_the_place_of_the_version_that_its_maker_asked_for(catalogue: Catalogue) -> None:
    assert (await catalogue.row(TENANT, TREE)).version == ""
    assert not await put(catalogue, TREE, row_of("stale"), "0123")
    assert await put(catalogue, TREE, row_of("first"), "")
    first = (await catalogue.row(TENANT, TREE)).version
    assert not await put(catalogue, TREE, row_of("late"), "")
    assert await put(catalogue, TREE, row_of("second"), first)
    assert not await put(catalogue, TREE, row_of("late"), first)
    assert (await catalogue.row(TENANT, TREE)).version != first
    assert (await catalogue.row(TENANT, TREE)).row == row_of("second")._replace(words="")


async def test_of_two_that_put_at_once_one_does(catalogue: Catalogue, place: Place) -> None:
    other = catalogue_at(place)
    for row in (row_of("word"), row_of("other"), None):
        version = (await catalogue.row(TENANT, TREE)).version
        done = await asyncio.gather(*(put(each, TREE, row, version) for each in (catalogue, other) * 4))
        assert sum(done) == 1
    await other.close()


async def test_a_bare_row_is_never_told_and_has_a_version(catalogue: Catalogue) -> None:
    await keep(catalogue, TREE, "word", "f01")
    before = (await catalogue.row(TENANT, TREE)).version
    assert await put(catalogue, TREE, None, before)
    assert (await catalogue.row(TENANT, TREE)).version not in ("", before)
    assert (await catalogue.row(TENANT, TREE)).row is None
    assert await found(catalogue) == await found(catalogue, "word") == await found(catalogue, facts=("f01",)) == []
    assert not await put(catalogue, TREE, row_of("word"), before)
    await keep(catalogue, TREE, "word")
    assert await found(catalogue, "word") == [TREE]


async def test_rows_are_told_as_they_were_put(catalogue: Catalogue) -> None:
    row = rows.CatalogueRow(1 << 50, "00ab", "00cd", b"\0\xff", ("f01",), "a word")
    await put(catalogue, TREE, row, "")
    (told,) = await catalogue.find(TENANT, KeptQuery(1))
    assert told == KeptTree(TREE, 1 << 50, "00ab", "00cd", b"\0\xff")
    assert (await catalogue.row(TENANT, TREE)).row == row._replace(facts=(), words="")


@pytest.mark.parametrize("words", [(), ("word",)])
async def test_pages_follow_each_other_the_one_used_last_first(catalogue: Catalogue, words: tuple[str, ...]) -> None:
    uses = {f"{number % 7:02x}{number:02x}": number % 5 for number in range(23)}
    for tree, used in uses.items():
        await keep(catalogue, tree, "a word", used=used)
    await keep(catalogue, "ffff", "a word", used=9, to=OTHER)
    place, told = KeptQuery(1).before, list[str]()
    while page := await catalogue.find(TENANT, KeptQuery(4, place, words=words)):
        told += [each.tree for each in page]
        place = page[-1].place
    assert told == sorted(uses, key=lambda tree: (uses[tree], tree), reverse=True)
    assert await found(catalogue, *words, limit=0) == []


async def test_those_used_from_a_time_on_are_told_alone(catalogue: Catalogue) -> None:
    for used in (10, 20, 30):
        await keep(catalogue, f"00{used}", "word", used=used)
    assert await found(catalogue, since=20) == await found(catalogue, "word", since=20) == ["0030", "0020"]


async def test_facts_are_found_as_a_whole_and_all_that_are_asked_for(catalogue: Catalogue) -> None:
    one, two = rows.fact_of("metadata", "user", "alice"), rows.fact_of("metadata", "user", "alic")
    await keep(catalogue, "0001", "", one)
    await keep(catalogue, "0002", f"{one}", two)
    await keep(catalogue, "0003", "said", one, two)
    await keep(catalogue, "0004", "said", one, to=OTHER)
    assert await found(catalogue, facts=(one,)) == ["0003", "0001"]
    assert await found(catalogue, facts=(one, two)) == ["0003"]
    assert await found(catalogue, "sai", facts=(one,)) == ["0003"]
    assert await found(catalogue, facts=(rows.fact_of("metadata", "useralice"),)) == []
    assert rows.fact_of("metadata", "user", "alice") != rows.fact_of("metadata", "usera", "lice")


TEXTS = {
    "0001": "L'École de Zürich: <b>foo-bar</b> baz, https://example.com/a/path?q=1 anna@example.org",
    "0002": "AND OR NOT NEAR it's 50% \"quoted\" \\ back * star's 'f01' don't",
    "0003": "Der Fußgänger ging 3.1415 Meter, 14; snake_case und 日本語 Привет",
    "0005": "我想学习机器学习 iPhone手机 ありがとう、東京タワー ฉันอยากเรียนภาษาไทย",
    "0006": "मुझे काम पसंद है كِتَابٌ יְרוּשָׁלַיִם",
    "0004": "foo-barred foo: & | ! <-> ( ) ' \" : words v2.71rc1 1,000",
}


@pytest.mark.parametrize(
    ("words", "trees"),
    [
        (("ecole",), "0001"),
        (("École",), "0001"),
        (("ÉCO",), "0001"),
        (("zur",), "0001"),
        (("cole",), ""),
        (("foo-bar",), "0004 0001"),
        (("bar",), "0004 0001"),
        (("foo-barr",), "0004"),
        (("example",), "0001"),
        (("anna@example.org",), "0001"),
        (("path?q",), "0001"),
        (("baz", "zürich"), "0001"),
        (("baz", "words"), ""),
        (("and",), "0002"),
        (("AND",), "0002"),
        (("NOT", "or", "NEAR"), "0002"),
        (('"quoted"',), "0002"),
        (('quo"',), "0002"),
        (('"',), ""),
        (("'",), ""),
        (("!!!", "&", "<->"), ""),
        (("foo", "-", "baz"), "0001"),
        (("it's",), "0002"),
        (("star's*",), "0002"),
        (("f01:*",), "0002"),
        (("foo:", "|", "quoted"), ""),
        (("nothing : foo",), ""),
        (("fußg",), "0003"),
        (("snake_ca",), "0003"),
        (("3.14",), "0003"),
        (("3.1",), "0003"),
        (("3.1415",), "0003"),
        (("14",), "0003"),
        (("v2.7",), "0004"),
        (("2.7",), ""),
        (("1,00",), "0004"),
        (("日本",), "0003"),
        (("日",), "0003"),
        (("w",), ""),
        (("foo-w",), ""),
        (("m.",), ""),
        (("ü",), ""),
        (("привет",), "0003"),
        (("学习",), "0005"),
        (("机器学习",), "0005"),
        (("机学",), ""),
        (("学习", "手机"), "0005"),
        (("phone",), ""),
        (("iphone手",), "0005"),
        (("京",), "0005"),
        (("本",), "0003"),
        (("がとう",), "0005"),
        (("タワー",), "0005"),
        (("เรียน",), "0005"),
        (("काम",), "0006"),
        (("पसं",), "0006"),
        (("मझम",), ""),
        (("كتاب",), "0006"),
        (("ירושל",), "0006"),
        (("\\",), ""),
        (("école\0de",), "0001"),
        (("foo\0",), "0004 0001"),
        (("x" * 100_000,), ""),
    ],
)
async def test_words_are_found_by_their_beginnings_and_mean_nothing_else(
    catalogue: Catalogue, words: tuple[str, ...], trees: str
) -> None:
    for tree, text in TEXTS.items():
        await keep(catalogue, tree, text, "f01")
    assert await found(catalogue, *words) == trees.split()


async def test_a_word_that_has_no_end_and_a_character_that_is_none_are_kept(catalogue: Catalogue) -> None:
    await keep(catalogue, "0001", "x" * 5_000 + " one\0two \N{GRINNING FACE}")
    await keep(catalogue, "0002", " ".join(f"w{number:05}" for number in range(60_000))[: 1 << 16])
    signs = [chr(0x4E00 + number) for number in range(0x4000)]
    await keep(catalogue, "0003", "".join(signs + [each for at in range(1, 4) for each in signs[at::3]])[: 1 << 16])
    assert await found(catalogue, "xxx", "two") == ["0001"]
    assert await found(catalogue, "w00001") == ["0002"]
    assert await found(catalogue, "学孧") == ["0003"]


async def test_another_tenant_s_words_are_never_found(catalogue: Catalogue) -> None:
    for tenant in (OTHER, "acme2", "acm", "a"):
        await keep(catalogue, TREE, "secret", "f01", to=tenant)
    assert await found(catalogue, "secret") == await found(catalogue, facts=("f01",)) == await found(catalogue) == []
    assert await catalogue.row(TENANT, TREE) == StoredRow()
    assert await found(catalogue, "secret", tenant="nobody") == []
    await keep(catalogue, TREE, "else")
    assert await found(catalogue, "secret") == []
    assert await found(catalogue, "secret", tenant=OTHER) == [TREE]


async def test_the_text_around_the_words_is_told(catalogue: Catalogue) -> None:
    await keep(catalogue, "0001", "a short text with an École in it")
    long = " ".join([*(f"before{number}" for number in range(100)), "wanted,", *("behind" for _ in range(100))])
    await keep(catalogue, "0002", long)
    (told,) = await catalogue.find(TENANT, KeptQuery(9, words=("ecol",)))
    assert told.text == "a short text with an École in it"
    (told,) = await catalogue.find(TENANT, KeptQuery(9, words=("want",)))
    assert "wanted, behind" in told.text
    assert told.text[0] == told.text[-1] == "…"
    assert len(told.text) <= rows.AROUND_CHARS + 2
    await keep(catalogue, "0003", "我" * 5_000 + "ガが学习" + "想" * 5_000)
    (told,) = await catalogue.find(TENANT, KeptQuery(9, words=("学习",)))
    assert "ガが学习想" in told.text
    assert len(told.text) == rows.AROUND_CHARS + 2
    assert all(each.text == "" for each in await catalogue.find(TENANT, KeptQuery(9)))


async def test_it_is_the_same_where_more_rows_match_than_are_sorted(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        await keep(catalogue, f"00{number:02}", "even word" if number % 2 == 0 else "odd word", used=number)
        await keep(catalogue, f"00{number:02}", "even word", used=number, to=OTHER)
    expected = [await found(catalogue, *words, limit=3) for words in (["even"], ["word"], ["odd", "wo"])]
    monkeypatch.setattr("store.catalogue.catalogue.MOST_SORTED", 1)
    assert [await found(catalogue, *words, limit=3) for words in (["even"], ["word"], ["odd", "wo"])] == expected
    assert expected == [["0008", "0006", "0004"], ["0008", "0007", "0006"], ["0007", "0005", "0003"]]


async def test_a_row_is_removed_or_all_of_a_tenant(catalogue: Catalogue) -> None:
    for tree in ("0001", "0002", "0003"):
        await keep(catalogue, tree, "word", "f01")
        await keep(catalogue, tree, "word", "f01", to=OTHER)
    version = (await catalogue.row(TENANT, "0001")).version
    for other in ("", (await catalogue.row(TENANT, "0002")).version):
        assert not await catalogue.put(TENANT, "0001", None, "", other)
    assert await catalogue.put(TENANT, "0001", None, "", version)
    assert not await catalogue.put(TENANT, "0001", None, "", version)
    await catalogue.erase("nobody", FIRST[0])
    assert await found(catalogue, "word") == ["0003", "0002"]
    assert (await catalogue.row(TENANT, "0001")).version == ""
    await catalogue.erase(TENANT, FIRST[0])
    assert await found(catalogue, "word") == await found(catalogue) == []
    assert len(await found(catalogue, "word", tenant=OTHER)) == 3


@pytest.mark.parametrize("removed", [1, 2, 3])
async def test_many_are_removed_a_few_at_a_time(
    catalogue: Catalogue, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.catalogue.catalogue.REMOVED", removed)
    for number in range(5):
        await keep(catalogue, f"000{number}", "word")
        await keep(catalogue, f"000{number}", "word", to=OTHER)
    await catalogue.erase(TENANT, FIRST[0])
    assert await found(catalogue) == []
    assert len(await found(catalogue, "word", tenant=OTHER)) == 5


async def test_a_note_is_told_as_it_was_put_last(catalogue: Catalogue, place: Place) -> None:
    other = catalogue_at(place)
    for value in ("one", "two", ""):
        await catalogue.put_note("whole", value)
        assert (await other.note("whole"), await other.note("else")) == (value, "")
    await other.close()


async def test_all_rows_are_told_a_page_at_a_time_in_the_order_of_the_archive(catalogue: Catalogue) -> None:
    wanted = {(tenant, f"00{number:02}") for tenant in ("acme", "acme-2", "acme.b") for number in range(4)}
    for tenant, tree in sorted(wanted, key=lambda each: each[1]):
        await keep(catalogue, tree, "word", to=tenant)
    await keep(catalogue, "0100", "of another shard")
    assert await put(catalogue, "00bare", None, "")
    told, after = list[str](), "00/"
    while some := await catalogue.versions(after, "000", 3):
        told += [place for place, _ in some]
        after = some[-1][0]
    assert told == sorted(place_of(*each) for each in wanted | {(TENANT, "00bare")})
    assert told[0].startswith("00/t.acme-2/")


async def test_it_is_tidy_in_the_end(catalogue: Catalogue) -> None:
    await keep(catalogue, TREE, "word")
    await keep(catalogue, TREE, "other")
    while await catalogue.tidy():
        pass
    assert not await catalogue.tidy()
    assert (await found(catalogue, "word"), await found(catalogue, "other")) == ([], [TREE])


@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
async def test_tables_of_a_later_release_are_left_alone(catalogue: Catalogue, place: Place) -> None:
    assert await catalogue.note("format") == str(FORMAT)
    await catalogue.put_note("format", str(FORMAT + 1))
    older = catalogue_at(place)
    for ask in (older.note("x"), older.put_note("x", ""), older.row(TENANT, TREE), put(older, TREE, None, "")):
        with pytest.raises(ArchiveRefused, match="harmonium_catalogue was written by a later release; drop it and"):
            await ask
    await older.close()
    await catalogue.put_note("format", str(FORMAT))
