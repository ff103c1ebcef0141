"""Level 1: one atomic command, without an expiry."""

import time
from holdfast_course import redis, sleep

def acquire(key, wait_s, ttl_ms):
    end = time.monotonic() + wait_s
    while not redis("SET", key, "held", "NX"):
        if time.monotonic() > end:
            return None
        sleep(0.01)
    return "held"

def release(key, token):
    redis("DEL", key)
    return True
