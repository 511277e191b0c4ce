"""Loans: what was taken is given back, whatever ended it, and while the store is away."""

import asyncio

import pytest

from service.errors import unavailable
from service.loans import Loans
from store.errors import ConversationHeld, StoreUnavailable
from tests.support.waiting import until

LATE_SECONDS = 0.05


class Lender:
    """A store that counts how often something was given back, and fails as it is told."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.given_back = 0

    async def give_back(self) -> None:
        if self.failures:
            raise self.failures.pop()
        self.given_back += 1


async def fail(error: BaseException) -> None:
    raise error


async def take() -> str:
    return "a token"


async def test_a_loan_is_given_back_at_the_end_of_its_block() -> None:
    loans, lender = Loans(LATE_SECONDS), Lender()
    async with loans.on_loan(take, lender.give_back) as loan:
        assert loan.taken == "a token"
        assert lender.given_back == 0
    async with loans.on_loan(take, lender.give_back) as loan:
        loan.over = True  # somebody else has it by now
    await loans.close()
    assert lender.given_back == 1


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (StoreUnavailable("away"), 2),
        (asyncio.CancelledError(), 2),
        (unavailable("It took too long."), 2),
        (ConversationHeld("conv_1"), 1),
    ],
)
async def test_a_loan_of_which_nobody_knows_whether_it_was_taken_is_given_back_twice(
    error: BaseException, times: int
) -> None:
    loans, lender = Loans(LATE_SECONDS), Lender()
    with pytest.raises(type(error)):
        async with loans.on_loan(lambda: fail(error), lender.give_back):
            pass
    await until(lambda: lender.given_back == times)
    await loans.close()
    assert lender.given_back == times


async def test_a_task_that_is_cancelled_while_it_gives_back_has_given_back() -> None:
    loans, let = Loans(LATE_SECONDS), asyncio.Event()
    given_back: list[str] = []

    async def give_back() -> None:
        await let.wait()
        given_back.append("it")

    async def use() -> None:
        async with loans.on_loan(take, give_back):
            pass

    using = asyncio.create_task(use())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    using.cancel()
    await asyncio.wait([using])
    let.set()
    await until(lambda: given_back)


async def test_a_store_that_is_away_gets_it_back_once_it_is_there() -> None:
    loans, lender = Loans(LATE_SECONDS), Lender(StoreUnavailable("away"), StoreUnavailable("away"))
    async with loans.on_loan(take, lender.give_back):
        pass
    assert lender.given_back == 0  # its task isn't kept
    await until(lambda: lender.given_back == 1)


async def test_a_process_that_ends_gives_back_what_it_knows_to_be_taken() -> None:
    loans, lender = Loans(60.0), Lender()
    loans.give_back(lender.give_back, doubtful=True)
    loans.give_back(lender.give_back, later=True)  # of which it doesn't know enough
    await loans.close()
    assert lender.given_back == 2
