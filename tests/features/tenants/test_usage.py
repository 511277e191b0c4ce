"""Usage: hours come to buckets, whose sums are exact however they are asked for."""

from collections.abc import Sequence

from service.features.tenants.usage import NOBODY, Bucket, UsageScope, usage_of
from store.spending import HourSpent, Spender, Spending, Sums

ACME, ZETA = Spender("acme", "key_1", "gpt-oss-20b"), Spender("zeta", "", "qwen")
ALL = ("tenant", "key", "model")


class Hours(Spending):
    """Shards that have spent something, and tell one hour at a time."""

    def __init__(self, *shards: Sequence[HourSpent]) -> None:
        self.spent = shards

    @property
    def shards(self) -> int:
        return len(self.spent)

    async def sums(self, shard: int, first: int, last: int) -> tuple[list[HourSpent], int]:
        """What one hour has, and the next one that has something."""
        hours = sorted({row.hour for row in self.spent[shard] if first <= row.hour <= last})
        if not hours:
            return [], last + 1
        return [row for row in self.spent[shard] if row.hour == hours[0]], hours[0] + 1


def spent(hour: int, spender: Spender = ACME, requests: int = 1) -> HourSpent:
    return HourSpent(hour, spender, Sums(requests, 10 * requests, requests, 2 * requests, requests))


async def test_days_are_those_of_utc_and_begin_and_end_where_it_was_asked() -> None:
    hours = Hours([spent(25), spent(30), spent(47), spent(48), spent(71), spent(72)], [spent(47)])
    found = await usage_of(hours, UsageScope(first=30, end=72))
    assert found == (
        [Bucket(30, 48, {NOBODY: Sums(3, 30, 3, 6, 3)}), Bucket(48, 72, {NOBODY: Sums(2, 20, 2, 4, 2)})],
        None,
    )


async def test_what_is_asked_by_page_comes_to_what_is_asked_at_once() -> None:
    hours = Hours([spent(hour, requests=hour) for hour in range(100, 160, 3)], [spent(hour) for hour in (101, 140)])
    whole = await usage_of(hours, UsageScope(first=100, end=160, width=1, most=100))
    pages: list[Bucket] = []
    first: int | None = 100
    while first is not None:
        page = await usage_of(hours, UsageScope(first=first, end=160, width=1, most=7))
        assert len(page.buckets) <= 7
        pages += page.buckets
        first = page.goes_on
    assert pages == whole.buckets
    assert [bucket.first for bucket in pages] == list(range(100, 160))


async def test_who_and_what_is_asked_for_is_all_that_is_told() -> None:
    hours = Hours([spent(0), spent(0, ZETA), spent(0, NOBODY), spent(0, ACME._replace(key="key_2"))])

    async def of(**how: object) -> dict[Spender, int]:
        (bucket,) = (await usage_of(hours, UsageScope(0, 1, **how))).buckets
        return {spender: sums.requests for spender, sums in bucket.results.items()}

    assert await of() == {NOBODY: 4}
    assert await of(by=("tenant",)) == {Spender("acme", "", ""): 2, Spender("zeta", "", ""): 1, NOBODY: 1}
    assert await of(by=("model", "key"), keys=frozenset(["key_2"])) == {Spender("", "key_2", "gpt-oss-20b"): 1}
    assert await of(tenants=frozenset(["acme", "zeta"]), models=frozenset(["qwen"]), by=ALL) == {ZETA: 1}
    assert await of(tenants=frozenset(["nobody"])) == {}


async def test_an_answer_with_too_much_has_fewer_buckets() -> None:
    others = [ACME._replace(key=f"key_{number}") for number in range(3)]
    hours = Hours(*([spent(hour, other) for hour in range(10)] for other in others))
    first: int | None = 0
    seen: list[Bucket] = []
    while first is not None:
        page = await usage_of(hours, UsageScope(first=first, end=10, width=1, most=10, by=ALL), 5)
        assert sum(len(bucket.results) for bucket in page.buckets) <= 5
        seen += page.buckets
        first = page.goes_on
    assert seen == [Bucket(hour, hour + 1, {other: spent(hour).sums for other in others}) for hour in range(10)]


async def test_a_bucket_with_too_much_counts_the_rest_as_nobodys() -> None:
    hours = Hours([spent(0, ACME._replace(key=f"key_{number}")) for number in range(50)], [spent(0)])
    (bucket,) = (await usage_of(hours, UsageScope(0, 1, by=ALL), 5)).buckets
    assert len(bucket.results) == 6
    assert sum(sums.requests for sums in bucket.results.values()) == 51
