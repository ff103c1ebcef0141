import time
from importlib.metadata import version

from redlock import Redlock

from adapter import serve


class Locks:
    name, fencing, renews = f"redlock-py {version('redlock-py')}", False, False

    def __init__(self, init):
        self.locks = Redlock([init["redis_url"]])
        self.ttl = init["ttl_ms"]

    def acquire(self, key, wait):
        until = time.monotonic() + wait
        while True:  # `lock` tries three times, each followed by a pause of 0.2 s
            lock = self.locks.lock(key, self.ttl)
            if lock or time.monotonic() >= until:
                return lock or None

    def release(self, _key, lock):
        self.locks.unlock(lock)  # returns nothing, and logs an error
        return True


serve(Locks)
