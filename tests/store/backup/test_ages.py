"""Last uses after a restore: in their order, as they were where they are recent, and never close to expiring."""

from hypothesis import given
from hypothesis import strategies as st

from store.backup.contents import Tally
from store.backup.records import Tree
from store.backup.restore import Ages

DAY = 86_400_000_000
NOW = 20_000 * DAY


def tally(*uses: int) -> Tally:
    found = Tally()
    for used in uses:
        found.add(Tree("acme", "resp_" + "0" * 48, used))
    return found


@given(st.lists(st.integers(1, NOW + DAY), min_size=1, max_size=20), st.sampled_from([0, DAY, 30 * DAY]))
def test_the_order_survives_and_no_age_is_more_than_half_of_what_may_be(uses: list[int], idle: int) -> None:
    ages = Ages(tally(*uses), NOW, idle)
    found = [ages.of(used) for used in sorted(uses)]
    assert found == sorted(found)
    assert all(used <= NOW for used in found)
    if idle:
        assert all(used >= NOW - idle // 2 for used in found)


@given(st.lists(st.integers(NOW - 15 * DAY, NOW), min_size=1, max_size=20))
def test_recent_uses_are_as_they_were(uses: list[int]) -> None:
    ages = Ages(tally(*uses), NOW, 30 * DAY)
    assert [ages.of(used) for used in uses] == uses


def test_where_nothing_expires_all_uses_are_as_they_were() -> None:
    ages = Ages(tally(1, NOW), NOW, 0)
    assert (ages.of(1), ages.of(NOW)) == (1, NOW)


def test_uses_by_a_clock_that_was_ahead_end_now() -> None:
    ages = Ages(tally(NOW, NOW + DAY), NOW, 0)
    assert (ages.of(NOW), ages.of(NOW + DAY)) == (NOW - DAY, NOW)
