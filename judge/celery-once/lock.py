from importlib.metadata import version

from celery_once import AlreadyQueued
from celery_once.backends.redis import Redis

from adapter import serve


class Locks:
    name, fencing, renews = f"celery-once {version('celery-once')}", False, False

    def __init__(self, init):
        self.settings = {"url": init["redis_url"], "blocking": True}
        self.ttl = init["ttl_ms"] / 1000

    def acquire(self, key, wait):
        backend = Redis({**self.settings, "blocking_timeout": wait})
        try:
            backend.raise_or_lock(key, timeout=self.ttl)
        except AlreadyQueued:
            return None
        return backend

    def release(self, key, backend):
        return backend.clear_lock(key) == 1


serve(Locks)
