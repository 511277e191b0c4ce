"""A scrape as tests read it: past the reference parser, then by name and labels. Never match its lines by hand."""

from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name that has all these labels."""
        (found,) = self.values(name, **labels)
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        """All samples of this name that have these labels."""
        return [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]

    def names(self) -> set[str]:
        return {each.name for each in self.samples}

    def labels(self, name: str, label: str) -> set[str]:
        """What the label says, over all samples of a name."""
        return {each.labels[label] for each in self.samples if each.name == name}

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        """The samples of a name that are not 0, by the values of their labels in order of the labels' names."""
        found = [each for each in self.samples if each.name == name and each.value]
        return {tuple(value for _, value in sorted(each.labels.items())): each.value for each in found}


def scraped(http: httpx.Client, **headers: str) -> Scraped:
    answer = http.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text)


def _families(text: str) -> Any:
    return text_string_to_metric_families(text)
