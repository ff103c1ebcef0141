import math
import os
import signal
import subprocess
import threading

from adapter import serve

VERSION = subprocess.run(["etcdctl", "version"], capture_output=True, text=True).stdout.split()[2]


class Locks:
    """The child holds the lock until SIGINT."""

    name, fencing, renews = f"etcdctl {VERSION} lock", False, True

    def __init__(self, init):
        endpoints = os.environ["ETCD_ENDPOINTS"]
        ttl = math.ceil(init["ttl_ms"] / 1000)  # in whole seconds; etcd grants no less than 2
        self.command = ["etcdctl", "--endpoints", endpoints, "lock", f"--ttl={ttl}"]
        self.children = set()

    def acquire(self, key, wait):
        child = subprocess.Popen(
            [*self.command, key], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.children.add(child)
        # The command has no timeout of its own.
        timed_out = threading.Event()
        timer = threading.Timer(wait, lambda: (timed_out.set(), child.send_signal(signal.SIGINT)))
        timer.start()
        granted = child.stdout.readline()
        timer.cancel()
        if granted and not timed_out.is_set():
            return child
        _, errors = child.communicate()
        self.children.discard(child)
        if timed_out.is_set():
            return None
        raise OSError(errors.strip() or f"etcdctl ended with {child.returncode}")

    def release(self, _key, child):
        held = self.held(_key, child)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate()
        self.children.discard(child)
        if held and child.returncode != 0:
            raise OSError(errors.strip())
        return held

    def held(self, _key, child):
        return child.poll() is None

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()


serve(Locks)
