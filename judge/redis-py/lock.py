import redis
from redis.exceptions import LockNotOwnedError

from adapter import serve


class Locks:
    name, fencing, renews = f"redis-py {redis.__version__} Lock", False, False

    def __init__(self, init):
        self.redis = redis.Redis.from_url(init["redis_url"])
        self.ttl = init["ttl_ms"] / 1000

    def acquire(self, key, wait):
        lock = self.redis.lock(key, timeout=self.ttl)
        return lock if lock.acquire(blocking_timeout=wait) else None

    def release(self, _key, lock):
        try:
            lock.release()
            return True
        except LockNotOwnedError:
            return False


serve(Locks)
