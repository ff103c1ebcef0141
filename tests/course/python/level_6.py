"""Level 6: a fence from a sequence of Postgres."""

import threading
import time
import uuid

from holdfast_course import postgres, redis, sleep

RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"
RENEW = ("return redis.call('get', KEYS[1]) == ARGV[1] "
         "and redis.call('pexpire', KEYS[1], ARGV[2])")
renewals = {}


def acquire(key, wait_s, ttl_ms):
    token = str(uuid.uuid4())
    end = time.monotonic() + wait_s
    while not redis("SET", key, token, "NX", "PX", ttl_ms):
        if time.monotonic() > end:
            return None
        sleep(0.01)
    renewals[token] = threading.Event()
    threading.Thread(target=renew, args=(key, token, ttl_ms), daemon=True).start()
    return token, new_fence()


def new_fence():
    """A number above all earlier ones, from a store that does not forget. Who is overtaken on the way
    has a higher fence than the next holder, who is then refused: nothing is lost."""
    return int(postgres("select nextval('fences')"))


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
