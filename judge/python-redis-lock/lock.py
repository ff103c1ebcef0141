import time

import redis
import redis_lock

from adapter import serve


class Locks:
    name = f"python-redis-lock {redis_lock.__version__}"
    fencing, renews = False, False

    def __init__(self, init):
        self.redis = redis.StrictRedis.from_url(init["redis_url"])
        self.ttl = max(1, init["ttl_ms"] // 1000)  # in whole seconds

    def acquire(self, key, wait):
        lock = redis_lock.Lock(self.redis, key, expire=self.ttl)
        until = time.monotonic() + wait
        # A timeout is in whole seconds, and may not exceed `expire`.
        while (left := int(until - time.monotonic())) >= 1:
            if lock.acquire(timeout=min(left, self.ttl)):
                return lock
        return lock if lock.acquire(blocking=False) else None

    def release(self, _key, lock):
        try:
            lock.release()
            return True
        except redis_lock.NotAcquired:
            return False


serve(Locks)
