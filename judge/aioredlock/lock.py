import asyncio
import threading
import time
from importlib.metadata import version

from aioredlock import Aioredlock
from aioredlock.errors import LockAcquiringError, LockError, LockRuntimeError

from adapter import serve


class Locks:
    name, fencing, renews = f"aioredlock {version('aioredlock')}", False, False

    def __init__(self, init):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.ttl = init["ttl_ms"] / 1000
        self.locks = self.run(self.open(init["redis_url"]))

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def open(self, url):
        return Aioredlock([url])

    def acquire(self, key, wait):
        until = time.monotonic() + wait
        while True:  # `lock` tries three times, with pauses of 0.1 to 0.3 s
            try:
                return self.run(self.locks.lock(key, lock_timeout=self.ttl))
            except LockRuntimeError:
                raise
            except LockError:
                if time.monotonic() >= until:
                    return None

    def release(self, _key, lock):
        try:
            self.run(self.locks.unlock(lock))
            return True
        except LockAcquiringError:
            return False


serve(Locks)
