"""The port of tenants: whose a key is, what its holder may do, what is reserved and spent, and what is noted.

`Entrance` is its plain form, too: keys are in the settings, their holders may do everything but administer, and nothing
is reserved, counted or noted. A feature overrides what it does more (service/features/tenants/entrance.py), and
service/process.py chooses. Never ask outside the feature which of them it is.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Protocol

import msgspec

from service.errors import ApiError
from service.settings.keys import Keys
from store.spent import Over, Spent, Unspent
from store.turn import Expense


class WrongKey(ApiError):
    """401: a key that opens nothing."""

    def __init__(self) -> None:
        message = "Incorrect API key provided. Check it, or ask this service's operator for one."
        super().__init__(401, message, code="invalid_api_key")


def not_permitted(scope: str, why: str) -> ApiError:
    """The refusal, 403, of what needs this scope."""
    return ApiError(
        403,
        f"You have insufficient permissions for this operation. Missing scopes: {scope}. {why}",
        code="insufficient_permissions",
    )


class Entry(msgspec.Struct, frozen=True):
    """Somebody who has entered: the tenant, and the id of the key, empty for a key of the settings. An administrator's
    `administers`, and does nothing else.
    """

    tenant: str
    key: str = ""
    administers: bool = False

    @property
    def keeps_ids(self) -> bool | None:
        """Whether its turns note what trajectories need; None where the settings say that."""
        return None

    def may_use(self, names: Sequence[str]) -> bool:
        """Whether it may use the model of these names."""
        return True

    def require(self, scope: str) -> None:
        """Raise ApiError 403 unless it may do what needs this scope."""


class ReservedWork(Protocol):
    """The work for which a reservation is made."""

    @property
    def spent(self) -> Spent | Unspent:
        """The tokens that it has taken until now."""
        ...


class Reservation(Protocol):
    """The reservation for some work. The end of its block settles it, unless that was done, or it is `handed_over`."""

    work: ReservedWork | None
    """None as long as it hasn't begun."""
    headers: list[tuple[bytes, bytes]]
    """The headers of the answer: how much is left."""

    def settle(self) -> None:
        """Count the tokens of work that is over, or never began. A second time changes nothing. Never blocks."""
        ...

    def handed_over(self, is_there: Callable[[], Awaitable[bool]]) -> AbstractContextManager[None]:
        """Hand the work over in the block to the process that settles it at its end; where that fails, it never began.
        Where nobody knows whether it was accepted, `is_there` says so later.
        """
        ...


class Entrance:
    """The way in for tenants."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    async def holder(self, key: bytes, project: str) -> Entry:
        """The entry of the key's holder, where the request names this project, or none. Raises ApiError: 401 for a key
        that opens nothing (WrongKey), 503; StoreUnavailable.
        """
        tenant = self.keys.tenant(key)
        if tenant is None:
            raise WrongKey
        return Entry(tenant)

    async def returning(self, tenant: str, key: str) -> Entry:
        """The entry of a tenant whose work continues, which began with the key of this id. Raises WrongKey where that
        key opens nothing any more, and StoreUnavailable.
        """
        return Entry(tenant, key)

    def weight(self, tenant: str) -> float | None:
        """The weight of a tenant, where it isn't that of the settings. Never blocks."""
        return None

    def reserving(
        self, entry: Entry, model: str, id: str, *, reads: int, writes: int, succeeds: bool = False
    ) -> AbstractAsyncContextManager[Reservation | None]:
        """The reservation, until the block ends, for a response that reads and writes so many tokens at most; None
        where it has no limits. A response that `succeeds` another takes the place of that one, which ends as it begins.
        Raises ApiError 429, StoreUnavailable.
        """
        return nullcontext()

    async def refuse_exhausted(self, entry: Entry, model: str, *, counts: bool = False, succeeds: bool = False) -> None:
        """Raise ApiError 429 where its limits let nothing begin now, nor one that `succeeds` another: before something
        is fetched on its word. It takes nothing of them, unless it `counts` as a request, as what has no reservation
        later. Raises StoreUnavailable.
        """

    def settle(self, tenant: str, over: Over) -> None:
        """Count the tokens of work that was reserved in another process. Never blocks."""

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        """Count the usage of the answer `id`, which isn't stored. It never fails."""

    async def note(self, entry: Entry, type: str, id: str, data: dict[str, object] | None = None) -> None:
        """Have the audit log say that it has done something of this type to what has the id. It never fails."""

    def wrong_key(self, request_id: str, address: str) -> None:
        """Note that somebody presented a wrong key. Never blocks."""

    async def close(self) -> None:
        """Settle and count what has ended."""
