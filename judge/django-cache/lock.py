import time

import django
from django.conf import settings
from django.core.cache import cache

from adapter import serve

POLL_INTERVAL = 0.1  # the recipe does not wait: the task is tried again later


class Locks:
    name, fencing, renews = f"Django {django.__version__} cache.add", False, False

    def __init__(self, init):
        backend = "django.core.cache.backends.redis.RedisCache"
        settings.configure(CACHES={"default": {"BACKEND": backend, "LOCATION": init["redis_url"]}})
        self.ttl = max(1, init["ttl_ms"] // 1000)  # in whole seconds

    def acquire(self, key, wait):
        until = time.monotonic() + wait
        while True:
            ends_at = time.monotonic() + self.ttl
            if cache.add(key, "held", self.ttl):
                return [ends_at]
            if time.monotonic() >= until:
                return None
            time.sleep(POLL_INTERVAL)

    def release(self, key, lease):
        # As the recipe does: what is expired may be another client's.
        return time.monotonic() < lease[0] and cache.delete(key)


serve(Locks)
