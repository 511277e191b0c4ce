"""Batches as requests have them made, looked at and cancelled, by any process. running.py works on them."""

import msgspec

from service.errors import ApiError, InvalidRequest, invalid_value, not_served
from service.features.batches.running import OWN
from service.features.batches.shapes import BATCHES, BatchRecord, read_batch, with_status
from service.responses.service import Service
from store.errors import StoreFull
from store.files.files import Files
from store.history.records import TenantRecords

RETRY_SECONDS = 60
"""When a client may come back that has as many batches under way as it may."""

TRIES = 8
"""How often a record is changed that others change meanwhile."""


class BatchDoor:
    """The batches of all tenants."""

    def __init__(self, service: Service, files: Files, translated: tuple[str, ...]) -> None:
        """`translated` are the endpoints beside the Responses API's."""
        self._service, self._files, self._endpoints = service, files, (OWN, *translated)
        self._stored = TenantRecords(service.store, BATCHES)

    async def create(self, tenant: str, key: str, body: bytes) -> tuple[str, BatchRecord]:
        """A new batch. Raises ApiError, StoreError."""
        service = self._service
        record = read_batch(body, key, service.store.clock())
        if record.endpoint not in self._endpoints:
            raise invalid_value("endpoint", record.endpoint, f"Give one of {', '.join(self._endpoints)}.")
        if not service.settings.store:
            raise not_served("endpoint", record.endpoint, "This service stores no responses, so it makes no batches.")
        file = await self._files.find(tenant, record.input_file_id)
        if file is None:
            message = f"No such File object: {record.input_file_id[:80]}. Upload it with the purpose 'batch' first."
            raise InvalidRequest(message, code="invalid_value", param="input_file_id")
        if file.purpose != "batch":
            raise invalid_value("input_file_id", record.input_file_id, "Its purpose is not 'batch'. Upload it again.")
        id, encoded = self._stored.new_id(tenant), msgspec.msgpack.encode(record)
        for _ in range(TRIES):
            try:
                if await self._stored.keep(tenant, id, encoded, under_way=True):
                    return id, record
            except StoreFull:
                if not await self._forget_oldest(tenant):
                    break
        raise ApiError(
            429,
            f"{BATCHES.most_open} of your batches are under way. Wait until one has ended, or cancel one.",
            type="rate_limit_error",
            code="batches_full",
            retry_after=RETRY_SECONDS,
        )

    async def _forget_oldest(self, tenant: str) -> bool:
        """Delete the oldest batch that has ended, if there are too many."""
        batches = await self.all(tenant)
        over = [id for id, record in batches if not record.under_way]
        if len(batches) - len(over) >= BATCHES.most_open or not over:
            return False
        await self._stored.drop(tenant, over[-1])
        return True

    async def all(self, tenant: str) -> list[tuple[str, BatchRecord]]:
        """A tenant's batches, newest first. Raises StoreError."""
        found = [(id, _decode(encoded)) for id, encoded in (await self._stored.all(tenant)).items()]
        return sorted(found, key=lambda each: (each[1].created_at, each[0]), reverse=True)

    async def find(self, tenant: str, id: str) -> BatchRecord:
        """A batch. Raises ApiError 404, StoreError."""
        return _decode(await self._record_bytes(tenant, id))

    async def cancel(self, tenant: str, id: str) -> BatchRecord:
        """A batch that is cancelled now, or soon. Raises ApiError, StoreError."""
        for _ in range(TRIES):
            encoded = await self._record_bytes(tenant, id)
            record = _decode(encoded)
            if record.status in ("cancelling", "cancelled"):
                return record
            if record.status not in ("validating", "in_progress"):
                message = f"The batch is {record.status}, so it can't be cancelled."
                raise ApiError(409, message, code="invalid_batch_status", param="batch_id")
            over = record.status == "validating" and not record.holder
            cancelled = with_status(record, "cancelled" if over else "cancelling", self._service.store.clock())
            kept, under_way = msgspec.msgpack.encode(cancelled), cancelled.under_way
            if await self._stored.keep(tenant, id, kept, encoded, under_way=under_way):
                return cancelled
        raise ApiError(409, "The batch changes all the time. Try again in a moment.", param="batch_id", retry_after=1)

    async def _record_bytes(self, tenant: str, id: str) -> bytes:
        encoded = await self._stored.get(tenant, id)
        if encoded is None:
            raise ApiError(404, f"No batch found with id '{id[:80]}'.", param="batch_id")
        return encoded


def _decode(encoded: bytes) -> BatchRecord:
    return msgspec.msgpack.decode(encoded, type=BatchRecord)
