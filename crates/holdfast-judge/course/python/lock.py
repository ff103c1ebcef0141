"""Your lock. `holdfast course check` judges it; README.md has the task."""

from holdfast_course import redis, sleep


def acquire(key, wait_s, ttl_ms):
    """Returns a token of your choice once you hold the lock on `key`, or None after `wait_s` seconds.
    From level 5 on: the token and a fence, as a pair. `ttl_ms` is the lease to use."""
    return None


def release(key, token):
    """Gives the lock back. Returns True if it was still yours, and False if you had lost it."""
    return True
