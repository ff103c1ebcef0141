"""Level 5: a fence, from a counter in Redis."""

import threading
import time
import uuid

from holdfast_course import redis, sleep

# The fence in the same step as the lock: between two steps, another one could be granted.
ACQUIRE = """
if not redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then return false end
return redis.call('incr', KEYS[1] .. ':fence')
"""
RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"
RENEW = ("return redis.call('get', KEYS[1]) == ARGV[1] "
         "and redis.call('pexpire', KEYS[1], ARGV[2])")
renewals = {}


def acquire(key, wait_s, ttl_ms):
    token = str(uuid.uuid4())
    end = time.monotonic() + wait_s
    while not (fence := redis("EVAL", ACQUIRE, 1, key, token, ttl_ms)):
        if time.monotonic() > end:
            return None
        sleep(0.01)
    renewals[token] = threading.Event()
    threading.Thread(target=renew, args=(key, token, ttl_ms), daemon=True).start()
    return token, fence


def renew(key, token, ttl_ms):
    ended = renewals[token]
    while not ended.wait(ttl_ms / 3000):
        try:
            if redis("EVAL", RENEW, 1, key, token, ttl_ms) != 1:
                return
        except ConnectionError:
            pass  # until the lease ends, the next one may succeed


def release(key, token):
    renewals.pop(token).set()
    return redis("EVAL", RELEASE, 1, key, token) == 1
