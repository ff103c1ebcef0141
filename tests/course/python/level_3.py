"""Level 3: only the owner deletes the key."""

import time
import uuid

from holdfast_course import redis, sleep

RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"


def acquire(key, wait_s, ttl_ms):
    token = str(uuid.uuid4())
    end = time.monotonic() + wait_s
    while not redis("SET", key, token, "NX", "PX", ttl_ms):
        if time.monotonic() > end:
            return None
        sleep(0.01)
    return token


def release(key, token):
    return redis("EVAL", RELEASE, 1, key, token) == 1
