"""The settings of web_search."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from service.settings.core import CoreSettings
from service.settings.group import Folder, SecretKey, needs_package, shown_as
from service.settings.sources import PREFIX
from service.settings.urls import is_url, mask_secrets
from service.stability import EXPERIMENTAL


def _right_url(value: str) -> str:
    if value and not is_url(value):
        raise ValueError("should be an http:// or https:// URL")
    return value


class SearchSettings(CoreSettings):
    """The source of web_search."""

    heading = "Web search"

    search: Annotated[
        Literal["none", "searxng", "brave", "tavily", "exa", "folder"], needs_package("lxml", "search", unless="none")
    ] = "none"
    """The source of web_search: SearXNG at SEARCH_URL; Brave, Tavily or Exa with SEARCH_KEY; or the documents of
    SEARCH_DIR. With `none`, web_search is left out."""
    search_url: Annotated[str, AfterValidator(_right_url), shown_as(mask_secrets)] = Field("", max_length=2048)
    """Address of SearXNG; another address for Brave, Tavily or Exa; the public address of documents."""
    search_key: SecretKey = Field(SecretStr(""), json_schema_extra=EXPERIMENTAL)
    """The key for Brave, Tavily or Exa."""
    search_dir: Folder = ""
    """Folder of HTML, Markdown and text files that `folder` searches."""

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        needed = {"searxng": "search_url", "folder": "search_dir"}.get(self.search, "search_key")
        given = self.search_key.get_secret_value() if needed == "search_key" else getattr(self, needed)
        if self.search != "none" and not given:
            raise ValueError(f"{PREFIX}SEARCH={self.search} needs {PREFIX}{needed.upper()}; set it")
        return self


GROUP = SearchSettings
