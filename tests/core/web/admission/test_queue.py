"""Whose turn it is: of a tenant first in, first out; of tenants, who was served least over its weight."""

from collections import Counter, deque
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.web.admission.queue import LEAST, LEAST_A_SECOND, MOST, OUTPUT, Bill, Queue, ServedTenants

SLOTS = 8
WAITING = 3


def any_of_them(tenant: str) -> bool:
    return True


def test_a_request_counts_as_what_its_tenants_took_until_it_has_ended() -> None:
    served = ServedTenants()
    for _ in range(100):
        bill = served.begin("acme")
        bill.note(100, 50)
        bill.settle()
    before = served.of("acme")
    assert before == 100 * (100 + OUTPUT * 50)
    bill = served.begin("acme")
    assert served.of("acme") - before == pytest.approx(200, rel=0.05)
    bill.note(100, 400)
    assert served.of("acme") == before + 900
    bill.note(100, 500)
    bill.settle()
    bill.settle()
    bill.note(100, 900)
    assert served.of("acme") == before + 1100


@pytest.mark.parametrize(("seconds", "turns"), [(0.0, 2000 / LEAST), (60.0, 2000 / (60 * LEAST_A_SECOND))])
def test_nobody_starves_beside_a_tenant_whose_requests_take_nothing(seconds: float, turns: float) -> None:
    served = ServedTenants()
    queue = Queue[str](served)
    for tenant in ("acme", "globex"):
        queue.join(tenant, tenant)
    served.add("globex", 2000)
    for turn in count():
        place = queue.take(any_of_them)
        assert place is not None
        if place.tenant == "globex":
            break
        assert turn <= turns
        queue.join("acme", "acme")
        served.begin("acme").settle(seconds)


def test_not_more_tenants_are_remembered_than_so_many_and_those_that_were_served_most() -> None:
    served = ServedTenants()
    for number in range(3 * MOST):
        served.add(str(number), number)
        assert len(served) <= MOST
    last = str(3 * MOST - 1)
    assert served.of(last) == 3 * MOST - 1
    assert served.of("0") == 0


class Size(NamedTuple):
    """About how many tokens a tenant's requests have of prompt and of output."""

    prompt: int
    output: int

    def some(self, random: Random) -> "Size":
        return Size(random.randint(1, 2 * self.prompt), random.randint(1, 2 * self.output))

    @property
    def virtual(self) -> int:
        return self.prompt + OUTPUT * self.output


class UnderWay:
    """A request in a slot."""

    def __init__(self, tenant: str, size: Size, bill: Bill) -> None:
        self.tenant = tenant
        self.size = size
        self.bill = bill
        self.sampled = 0


class Server:
    """SLOTS slots, which tenants that always have WAITING requests keep busy. Each makes a token a step."""

    def __init__(self, sizes: Mapping[str, Size], weights: Mapping[str, float]) -> None:
        self.served = ServedTenants(weights.__getitem__)
        self.took = Counter[str]()
        self.largest = Counter[str]()
        self._sizes = sizes
        self._random = Random(7)
        self._queue = Queue[int](self.served)
        self._numbers = count()
        self._order = {tenant: deque[int]() for tenant in sizes}
        self._under_way: list[UnderWay] = []
        for _ in range(WAITING):
            for tenant in sizes:
                self._ask(tenant)

    def _ask(self, tenant: str) -> None:
        number = next(self._numbers)
        self._queue.join(tenant, number)
        self._order[tenant].append(number)

    def step(self) -> None:
        """Let those begin for whom there are slots, and each make a token."""
        while len(self._under_way) < SLOTS:
            self._begin()
        for each in self._under_way:
            each.sampled += 1
            each.bill.note(each.size.prompt, each.sampled)
            self.took[each.tenant] += OUTPUT
            if each.sampled == each.size.output:
                each.bill.settle()
        self._under_way = [each for each in self._under_way if each.sampled < each.size.output]

    def _begin(self) -> None:
        place = self._queue.take(any_of_them)
        assert place is not None
        tenant = place.tenant
        assert self._order[tenant].popleft() == place.answer, "first in, first out"
        self._ask(tenant)
        size = self._sizes[tenant].some(self._random)
        self.largest[tenant] = max(self.largest[tenant], size.virtual)
        self.took[tenant] += size.prompt
        self._under_way.append(UnderWay(tenant, size, self.served.begin(tenant)))


SIZES = st.builds(Size, st.integers(1, 200), st.integers(1, 60))
TENANTS = st.dictionaries(st.sampled_from("abcde"), st.tuples(SIZES, st.sampled_from([0.5, 1, 2, 3])), min_size=2)


@settings(max_examples=40, deadline=None)
@given(TENANTS)
def test_tenants_that_always_wait_are_served_by_their_weights(tenants: dict[str, tuple[Size, float]]) -> None:
    weights = {tenant: weight for tenant, (_, weight) in tenants.items()}
    server = Server({tenant: size for tenant, (size, _) in tenants.items()}, weights)
    for _ in range(300):
        server.step()
    counts = {tenant: server.took[tenant] / weights[tenant] for tenant in tenants}
    bound = 2 * SLOTS * max(server.largest[tenant] / weights[tenant] for tenant in tenants)  # what is under way
    assert max(counts.values()) - min(counts.values()) <= bound, (counts, bound)


def test_tokens_follow_a_weight_that_changes_while_all_wait() -> None:
    weights, size = {"acme": 1.0, "globex": 1.0}, Size(50, 20)
    server = Server({"acme": size, "globex": size}, weights)
    for weight in (1.0, 4.0, 0.25, 1.0):
        weights["globex"] = weight
        server.took.clear()
        for _ in range(4_000):
            server.step()
        share = server.took["globex"] / server.took.total()
        assert share == pytest.approx(weight / (1 + weight), rel=0.05)


@given(st.lists(st.integers(0, 3), max_size=40))
def test_nobody_starves_however_many_newcomers_there_are(comings: list[int]) -> None:
    served = ServedTenants()
    queue, names = Queue[str](served), count()

    def come(tenant: str) -> None:
        queue.join(tenant, tenant)

    for _ in range(3):
        come(f"tenant {next(names)}")
    come("acme")
    before = len(queue)
    for turn, newcomers in enumerate(comings):
        for _ in range(newcomers):
            come(f"tenant {next(names)}")
        place = queue.take(any_of_them)
        if place is None or place.tenant == "acme":
            assert turn < before
            return
        served.begin(place.tenant)


def test_who_was_served_more_does_not_pass_who_finds_no_room() -> None:
    served = ServedTenants()
    queue = Queue[str](served)
    queue.join("acme", "a")
    queue.join("globex", "b")
    served.add("globex", 1)
    assert queue.take(only_globex) is None
    served.add("acme", 1)
    assert queue.take(only_globex) is not None


def only_globex(tenant: str) -> bool:
    return tenant == "globex"


def test_who_comes_back_counts_no_less_than_those_that_wait() -> None:
    served = ServedTenants()
    queue = Queue[str](served)
    served.begin("acme").settle()
    queue.join("globex", "b")
    served.add("globex", 5000)
    queue.join("acme", "a")
    assert served.of("acme") == served.of("globex")
    served.add("globex", 1)
    queue.join("acme", "c")  # it has something waiting: nothing is added
    assert served.of("acme") < served.of("globex")
