"""A server that goes back in time: what it had at one moment, and has again later."""

from redis.asyncio import Redis


async def remembered(redis: Redis, prefix: str) -> dict[bytes, bytes]:
    """What a server has under a prefix now."""
    keys = [key async for key in redis.scan_iter(f"{prefix}:*")]
    return {key: value for key in keys if (value := await redis.dump(key)) is not None}


async def gone_back(redis: Redis, prefix: str, before: dict[bytes, bytes]) -> None:
    """Have a server be as it was before, all at once as a server that starts with an old file; what expires would be
    gone by then.
    """
    now = [key async for key in redis.scan_iter(f"{prefix}:*")]
    async with redis.pipeline(transaction=True) as all_at_once:
        if now:
            all_at_once.delete(*now)
        for key, value in before.items():
            if b":fence:" not in key and not key.endswith(b":archiver"):
                all_at_once.restore(key, 0, value, replace=True)
        await all_at_once.execute()
