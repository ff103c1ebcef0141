from importlib.metadata import version

import redis
from pottery import Redlock, ReleaseUnlockedLock

from adapter import serve


class Locks:
    name, fencing, renews = f"pottery {version('pottery')} Redlock", False, False

    def __init__(self, init):
        self.masters = {redis.Redis.from_url(init["redis_url"])}
        self.ttl = init["ttl_ms"] / 1000

    def acquire(self, key, wait):
        lock = Redlock(key=key, masters=self.masters, auto_release_time=self.ttl)
        acquired = lock.acquire(timeout=wait) if wait else lock.acquire(blocking=False)
        return lock if acquired else None

    def release(self, _key, lock):
        try:
            lock.release()
            return True
        except ReleaseUnlockedLock:
            return False


serve(Locks)
