from importlib.metadata import version

import redis
from sherlock import LockException, LockTimeoutException, RedisLock

from adapter import serve


class Locks:
    name, fencing, renews = f"sherlock {version('sherlock')} RedisLock", False, False

    def __init__(self, init):
        self.redis = redis.Redis.from_url(init["redis_url"])
        self.ttl = max(1, init["ttl_ms"] // 1000)  # in whole seconds

    def acquire(self, key, wait):
        lock = RedisLock(key, client=self.redis, expire=self.ttl, timeout=wait)
        try:
            lock.acquire()
        except LockTimeoutException:
            return None
        return lock

    def release(self, _key, lock):
        try:
            lock.release()
            return True
        except LockException:
            return False


serve(Locks)
