import os
import subprocess
import tempfile
from urllib.parse import quote

from adapter import serve

DEFAULT = os.path.join(tempfile.gettempdir(), "holdfast-judge-flock")
VERSION = subprocess.run(["flock", "--version"], capture_output=True, text=True).stdout.split()[-1]


class Locks:
    """The child holds the lock while it waits for the end of its input."""

    name, fencing, renews = f"flock(1) of util-linux {VERSION}", False, False

    def __init__(self, _init):
        self.folder = os.environ.get("FLOCK_FOLDER") or DEFAULT
        os.makedirs(self.folder, exist_ok=True)

    def acquire(self, key, wait):
        file = os.path.join(self.folder, quote(key, safe=""))
        limit = ["--timeout", str(wait)] if wait else ["--nonblock"]
        child = subprocess.Popen(
            ["flock", *limit, file, "sh", "-c", "echo granted; read _"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if child.stdout.readline():
            return child
        if child.wait() == 1:
            return None
        raise OSError(f"flock ended with {child.returncode}")

    def release(self, _key, child):
        held = child.poll() is None
        child.communicate()
        return held


serve(Locks)
