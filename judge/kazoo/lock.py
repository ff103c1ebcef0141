import logging
import os
from importlib.metadata import version

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

from adapter import serve

logging.basicConfig(level=logging.ERROR)


class Locks:
    name, fencing, renews = f"kazoo {version('kazoo')} Lock", False, True

    def __init__(self, init):
        # ZooKeeper grants no session below two of its ticks.
        self.client = KazooClient(os.environ["ZOOKEEPER"], timeout=init["ttl_ms"] / 1000)
        self.client.start()

    def acquire(self, key, wait):
        lock = self.client.Lock("/" + key)
        try:
            return lock if lock.acquire(blocking=wait > 0, timeout=wait or None) else None
        except LockTimeout:
            return None

    def release(self, _key, lock):
        return bool(lock.release())


serve(Locks)
