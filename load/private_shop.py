"""A shop for one script: `holdfast up`, and the memory of its replicas.

`Monitor` works on Linux only: it reads /proc.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Optional

from processes import HOST, Process, free_ports, until
from shop import ScriptError, replicas_of_up

START_TIMEOUT_S = 120
AUDIT_TIMEOUT_S = 300
# Longer than the grace periods of `up`.
STOP_TIMEOUT_S = 60
SAMPLE_INTERVAL_S = 0.5


class Up(Process):
    """A `holdfast up` that is ready within the block."""

    def __init__(self, program, data: Path, *options, settings: Optional[dict[str, str]] = None):
        if not os.access(program, os.X_OK):
            raise ScriptError(f"{program} is missing: build it with cargo build --release")
        self.program, self.data = program, data
        # Settings of another shop do not apply to this one.
        env = {name: value for name, value in os.environ.items()
               if name not in ("DATABASE_URL", "REDIS_URL")
               and (not name.startswith("HOLDFAST_") or name == "HOLDFAST_PROGRAMS_PATH")}
        # Its servers are ended by it.
        super().__init__([program, "up", "--data", data, *options], is_group_ended=False,
                         end_timeout_s=STOP_TIMEOUT_S, env={**env, **(settings or {})})

    def __enter__(self) -> Up:
        super().__enter__()
        try:
            until("the shop is ready", self.is_ready, START_TIMEOUT_S)
        except BaseException:
            self.__exit__()
            raise
        self.base_urls = replicas_of_up(self.data).split(",")
        return self

    def is_ready(self) -> bool:
        if self.popen.poll() is not None:
            raise ScriptError(f"the shop did not start:\n{self.printed()}")
        return (self.data / "env").exists()

    def children(self) -> dict[str, int]:
        """Returns the processes by role, from the file that `up` keeps."""
        lines = [line.split() for line in (self.data / "pids").read_text().splitlines()]
        return {line[0]: int(line[1]) for line in lines if line[0] not in ("folder", "sockets")}

    def replicas(self) -> list[int]:
        return sorted(pid for role, pid in self.children().items() if role.startswith("replica-"))

    def log_mib(self) -> float:
        logs = sum(log.stat().st_size for log in self.data.rglob("*.log"))
        return (logs + os.fstat(self.output.fileno()).st_size) / 2**20

    def audit(self) -> tuple[bool, str]:
        """Returns whether the books are sound, and the report of `holdfast audit`."""
        audit = subprocess.run([self.program, "audit", "--data", str(self.data)],
                               capture_output=True, text=True, timeout=AUDIT_TIMEOUT_S)
        report = (audit.stdout + audit.stderr).strip()
        if audit.returncode not in (0, 1):
            raise ScriptError(f"the audit failed: {report}")
        return audit.returncode == 0, report


class PrivateShop(Up):
    """In a temporary folder, with the demo users; removed at its end."""

    def __init__(self, program: str, replicas: int, limits: Optional[dict[str, str]] = None,
                 lab: str = "off"):
        # As root, Postgres runs as another user, which needs access to the folder.
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-shop-")
        os.chmod(self.folder.name, 0o755)
        listen = f"{HOST}:{free_ports(replicas)}"
        super().__init__(program, Path(self.folder.name, "data"), "--lab", lab, "--replicas", replicas,
                         "--listen", listen, settings=limits)

    def __exit__(self, *_) -> None:
        super().__exit__()
        self.folder.cleanup()


class Monitor:
    """Samples the memory of the replicas during the block."""

    def __init__(self, shop: Up) -> None:
        self.pids = shop.replicas()
        self.memory_mib: dict[int, list[float]] = {pid: [] for pid in self.pids}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Monitor:
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.thread.join()

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_INTERVAL_S):
            for pid, series in self.memory_mib.items():
                series.extend(memory_mib(pid))


def memory_mib(pid: int) -> list[float]:
    """Returns the resident memory of a process; nothing if it has exited."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")]
