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

    def acquire(self, key, wait):
        child = subprocess.Popen(
            [*self.command, key], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        # The command has no timeout of its own.
        timed_out = threading.Event()
        timer = threading.Timer(wait, lambda: (timed_out.set(), child.send_signal(signal.SIGINT)))
        timer.start()
        granted = child.stdout.readline()
        timer.cancel()
        if granted and not timed_out.is_set():
            return child
        _, errors = child.communicate()
        if timed_out.is_set():
            return None
        raise OSError(errors.strip() or f"etcdctl ended with {child.returncode}")

    def release(self, _key, child):
        held = child.poll() is None
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate()
        if held and child.returncode != 0:
            raise OSError(errors.strip())
        return held


serve(Locks)
