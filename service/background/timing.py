"""The times that background work waits, given when it is constructed, so that tests are quick without patching."""

from dataclasses import dataclass

from service.backoff import Backoff


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """The times of a worker and its attempts. All but `engine_away` are seconds."""

    poll_seconds: float = 1.0
    """How often a worker with room looks for jobs of which no message came, and for leases that ran out."""

    polled_shards: int = 8
    """How many shards in which nothing is known to be under way are looked into each time, by turns."""

    engine_away: Backoff = Backoff(0.5, 30.0)
    """For how long no job is taken after the engine failed."""

    give_way_seconds: float = 1.0
    """For how long a tenant's response waits before others' that run here give way to it."""

    alone_seconds: float = 10.0
    """For how long at most a job that may be what killed its last workers keeps others from being taken beside it."""

    retry_seconds: float = 0.5
    """How long a job is kept from the next attempt when the engine has failed with it, so that a fault isn't asked for
    again and again as fast as that goes."""

    model_away_seconds: float = 5.0
    """How long a job is kept from the next attempt when no server of its model can be had, and others' can."""

    batch_seconds: float = 0.02
    """How long an event waits for others, before they go into the log together."""

    kept_seconds: float = 4.0
    """For how long an entry of a log is kept after it was written, to be written again. A server that syncs once a
    second loses two seconds at most."""


TIMING = Timing()
