"""Level 2: the key expires."""

import time

from holdfast_course import redis, sleep


def acquire(key, wait_s, ttl_ms):
    end = time.monotonic() + wait_s
    while not redis("SET", key, "held", "NX", "PX", ttl_ms):
        if time.monotonic() > end:
            return None
        sleep(0.01)
    return "held"


def release(key, token):
    redis("DEL", key)
    return True
