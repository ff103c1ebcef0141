"""The adapter of a lock for `holdfast judge`: put your own lock in place of redis-py's.

    pip install redis
    holdfast judge -- python3 lock.py
"""

import redis
from redis.exceptions import LockNotOwnedError

from adapter import serve


class Locks:
    name, fencing, renews = "my lock", False, False

    def __init__(self, init):
        self.redis = redis.Redis.from_url(init["redis_url"])
        self.ttl_s = init["ttl_ms"] / 1000

    def acquire(self, key, wait_s):
        lock = self.redis.lock(key, timeout=self.ttl_s)
        return lock if lock.acquire(blocking_timeout=wait_s) else None

    def release(self, key, lock):
        try:
            lock.release()
            return True
        except LockNotOwnedError:
            return False


serve(Locks)
