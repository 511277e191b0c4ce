"""What every service that searches does, over its wire as documented: the conformance suite of the port."""

from collections.abc import AsyncIterator, Callable

import pytest

from service.features.browser.browser.page import Result
from service.features.browser.search.port import Searcher, SearchFailure, SearchQuery
from service.features.browser.search.services import searcher_of
from tests.support.search.services import KEY, Services, search_services

Opened = Callable[[str], Searcher]

OPENED: dict[str, Opened] = {
    "searxng": lambda url: searcher_of("searxng", url=f"{url}/searxng/"),
    "brave": lambda url: searcher_of("brave", url=f"{url}/brave", key=KEY),
    "tavily": lambda url: searcher_of("tavily", url=f"{url}/tavily", key=KEY),
    "exa": lambda url: searcher_of("exa", url=f"{url}/exa/", key=KEY),
}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with search_services() as running:
        yield running


@pytest.fixture(params=OPENED)
def searcher(request: pytest.FixtureRequest, services: Services) -> Searcher:
    return OPENED[request.param](services.url)


async def test_it_finds_pages_and_nothing_that_is_none(searcher: Searcher) -> None:
    assert await searcher(SearchQuery("tides")) == [
        Result("https://tides.example/brest", "Tides in Brest", "High & low water."),
        Result("https://port.example/fr/", "The <port>", "Quays."),
    ]
    assert await searcher(SearchQuery("none")) == []


async def test_domains_are_told_to_the_service_and_always_hold(searcher: Searcher, services: Services) -> None:
    found = await searcher(SearchQuery("tides", ("port.example",)))

    assert [result.url for result in found] == ["https://port.example/fr/"]
    assert "port.example" in str(services.asked)


@pytest.mark.parametrize("text", ["http 500", "html", "types", "huge", "redirect"])
async def test_a_service_that_fails_says_why_and_nothing_of_what_it_said(searcher: Searcher, text: str) -> None:
    with pytest.raises(SearchFailure, match="search service") as failure:
        await searcher(SearchQuery(text))

    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("name", OPENED)
async def test_a_service_that_is_away_is_a_failure(name: str) -> None:
    with pytest.raises(SearchFailure, match="can't be reached"):
        await OPENED[name]("http://127.0.0.1:9")(SearchQuery("tides"))


@pytest.mark.parametrize("name", ["brave", "tavily", "exa"])
async def test_a_key_that_is_wrong_is_a_failure_that_does_not_tell_it(name: str, services: Services) -> None:
    searcher = searcher_of(name, url=f"{services.url}/{name}", key="sk-wrong")
    with pytest.raises(SearchFailure, match="HTTP 4") as failure:
        await searcher(SearchQuery("tides"))

    assert "sk-wrong" not in str(failure.value)


async def test_a_country_goes_to_those_that_know_countries(services: Services) -> None:
    for name in ("brave", "exa"):
        await OPENED[name](services.url)(SearchQuery("tides", country="FR"))

    assert services.asked[0]["query"]["country"] == "FR"
    assert services.asked[1]["body"]["userLocation"] == "FR"
