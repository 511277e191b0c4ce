"""A store as releases before decision 45 left it: all tenants' leaves in one order, and their counters in one hash."""

import re

from redis.asyncio import Redis

from tests.support.store.audit import COUNTERS, INDEXED_BYTES, LEAF_BYTES, TREE_BYTES

HOUR_US = 3_600_000_000


async def make_former(redis: Redis, prefix: str, *, ago_us: int = HOUR_US) -> None:
    """Bring the only shard into that form; its leaves were used so much longer ago than they were."""
    shard = f"{prefix}:{{00}}"
    places = await redis.zrange(f"{shard}:tombstones", 0, -1, withscores=True)
    for key in [key async for key in redis.scan_iter(f"{shard}:leaves:*")]:
        tenant = key.decode().rpartition(":")[2]
        for digits, touched in await redis.zrange(key, 0, -1, withscores=True):
            places.append((f"{tenant}/{digits.decode()}".encode(), touched - ago_us))
            await redis.hset(f"{shard}:t:{tenant}:node:{digits.decode()}", "touched", int(touched - ago_us))
        await redis.delete(key)
    await redis.delete(f"{shard}:tombstones")
    if places:
        await redis.zadd(f"{shard}:leaves", dict(places))
        await redis.hincrby(f"{shard}:usage", "bytes", -LEAF_BYTES * len(places))
    await forget_trees_of_tenants(redis, prefix)
    trees = dict(await redis.zrange(f"{shard}:usage:trees", 0, -1, withscores=True))
    for counter in COUNTERS:
        for tenant, number in await redis.zrange(f"{shard}:usage:{counter}", 0, -1, withscores=True):
            if counter == "bytes":
                own = [member for member, _ in places if re.match(rb"%b/" % re.escape(tenant), member)]
                number -= LEAF_BYTES * len(own) + TREE_BYTES * trees.get(tenant, 0)
            await redis.hset(f"{shard}:usage", f"{counter}/{tenant.decode()}", int(number))
    await redis.delete(*(f"{shard}:usage:{counter}" for counter in COUNTERS))


async def forget_trees_of_tenants(redis: Redis, prefix: str) -> None:
    """Bring the only shard into the form of a release that had trees in the order of all tenants alone."""
    shard = f"{prefix}:{{00}}"
    for key in [key async for key in redis.scan_iter(f"{shard}:trees:*")]:
        held = INDEXED_BYTES * await redis.zcard(key)
        await redis.hincrby(f"{shard}:usage", "bytes", -held)
        await redis.zincrby(f"{shard}:usage:bytes", -held, key.decode().rpartition(":")[2])
        await redis.delete(key)
    await redis.hdel(f"{shard}:sweeps", "indexing", "indexed")
