"""A service in a thread of this process, on a real port: for what no process, no signal and no memory matters."""

import asyncio
import threading
import uuid
from pathlib import Path

from service.engine.port import Engine
from service.process import load_settings
from tests.support.service.inside import serving
from tests.support.service.process import START_SECONDS, STOP_SECONDS, Served


class ServiceBeside(Served):
    """One service, with a part of a store to itself."""

    def __init__(self, folder: Path, redis_url: str, engine: Engine | None = None, **settings: object) -> None:
        """Starts it. `folder` is for its archive; `settings` are those of service/settings/settings.py."""
        super().__init__("")
        own: dict[str, object] = {"redis_prefix": f"beside-{uuid.uuid4().hex}", "data_dir": folder}
        own |= {"store_timeout_seconds": 10.0, "lease_seconds": 30.0}
        self.settings = load_settings(**{"redis_url": redis_url, **own, **settings})
        self._engine, self._started = engine, threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._started.wait(START_SECONDS)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self.settings, self._engine) as inside:
            self.url = inside.url
            self._started.set()
            await self._over.wait()

    def stop(self) -> None:
        """End it."""
        self._hang_up()
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(STOP_SECONDS)
        assert not self._thread.is_alive()
