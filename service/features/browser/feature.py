"""The browser in a process: the tool, citations, and the fetching of pictures."""

from pathlib import Path

from service.api.content import USUAL_BOUNDS
from service.features.browser.citing import citing_of
from service.features.browser.settings import SearchSettings
from service.process import Feature, Parts
from service.settings.sources import variable
from service.ssrf import outside_of
from service.tools.port import Tool

PICTURE_TYPES = "image/png,image/jpeg,image/webp,image/gif"
"""The types of pictures for which servers are asked; bytes say which one they are."""


class BrowserFeature(Feature):
    """The browser."""

    tool_settings = {"web_search": variable("search")}

    def compose(self, parts: Parts) -> None:
        settings = SearchSettings.of(parts.settings)
        parts.cite = citing_of
        if settings.search != "none":
            parts.tools.append(open_browser(settings))
        bounds = settings.picture_bounds or USUAL_BOUNDS
        if bounds.urls:
            from service.features.browser.search.fetcher import Fetcher, FetchLimits

            limits, judge = FetchLimits(bytes=bounds.bytes + 1), outside_of(settings.private_networks)
            fetcher = Fetcher("pictures", PICTURE_TYPES, settings.allowed_private_hosts, limits, may_reach=judge)
            parts.fetch_picture = fetcher.whole


def open_browser(settings: SearchSettings) -> Tool:
    """The browser over what the settings search. The HTML reader is imported only where there is a browser."""
    from service.features.browser.browsing import Browsing
    from service.features.browser.search.folder import ADDRESS, Folder
    from service.features.browser.search.services import searcher_of
    from service.features.browser.search.web import Web

    if settings.search == "folder":
        folder = Folder(Path(settings.search_dir), settings.search_url or ADDRESS)
        return Browsing(folder.search, folder.page)
    pages = Web(settings.allowed_private_hosts, may_reach=outside_of(settings.private_networks))
    key = settings.search_key.get_secret_value()
    return Browsing(searcher_of(settings.search, url=settings.search_url, key=key), pages.page)


FEATURE = BrowserFeature()
