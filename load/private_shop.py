"""A shop for one script: `holdfast up` in a temporary folder, and the resources of its replicas.

Linux only: reads /proc, and connects from several loopback addresses.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from shop import ScriptError

HOST = "127.0.0.1"
# Below the ephemeral ports, which other connections use.
PORTS = range(20_000, 30_000)
START_TIMEOUT_S = 120
AUDIT_TIMEOUT_S = 300
# Longer than the grace periods of `up`.
STOP_TIMEOUT_S = 60
SAMPLE_INTERVAL_S = 0.5


@dataclass
class Usage:
    """Resources of one process."""

    memory_mib: float
    open_files: int


class PrivateShop:
    """Starts with the block, without the lab and with the demo users; removed at its end."""

    def __init__(self, program: str, replicas: int, limits: Optional[dict[str, str]] = None):
        if not os.access(program, os.X_OK):
            raise ScriptError(f"{program} is missing: build it with cargo build --release")
        self.program, self.replicas, self.limits = program, replicas, limits or {}

    def __enter__(self) -> PrivateShop:
        # As root, Postgres runs as another user, which needs access to the folder.
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-abuse-"))
        self.folder.chmod(0o755)
        self.data, self.log = self.folder / "data", self.folder / "up.log"
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        port = free_ports(self.replicas)
        self.base_urls = [f"http://{HOST}:{port + n}" for n in range(self.replicas)]
        # Settings of another shop do not apply to this one.
        env = {name: value for name, value in os.environ.items()
               if not name.startswith("HOLDFAST_") or name == "HOLDFAST_PROGRAMS_PATH"}
        command = [self.program, "up", "--lab", "off", "--replicas", str(self.replicas),
                   "--listen", f"{HOST}:{port}", "--data", str(self.data)]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env={**env, **self.limits})
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (self.data / "env").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ScriptError(f"the shop did not start:\n{self.log.read_text()}")
            time.sleep(0.1)

    def __exit__(self, *_) -> None:
        process = getattr(self, "process", None)
        if process:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pids(self) -> list[int]:
        """Returns the processes of the replicas, from the file that `up` keeps."""
        lines = [line.split() for line in (self.data / "pids").read_text().splitlines()]
        return sorted(int(line[1]) for line in lines if line[0].startswith("replica-"))

    def log_mib(self) -> float:
        logs = [self.log, *self.data.rglob("*.log")]
        return sum(log.stat().st_size for log in logs) / 2**20

    def audit(self) -> tuple[bool, str]:
        """Returns whether the books are sound, and the report of `holdfast audit`."""
        audit = subprocess.run([self.program, "audit", "--data", str(self.data)],
                               capture_output=True, text=True, timeout=AUDIT_TIMEOUT_S)
        report = (audit.stdout + audit.stderr).strip()
        if audit.returncode not in (0, 1):
            raise ScriptError(f"the audit failed: {report}")
        return audit.returncode == 0, report


class Monitor:
    """Samples the resources of the replicas during the block."""

    def __init__(self, shop: PrivateShop) -> None:
        self.pids = shop.pids()
        self.samples: dict[int, list[Usage]] = {pid: [] for pid in self.pids}
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
            for pid, samples in self.samples.items():
                usage = usage_of(pid)
                if usage:
                    samples.append(usage)

    def memory_mib(self) -> list[list[float]]:
        """Returns the series of each replica."""
        return [[usage.memory_mib for usage in samples] for samples in self.samples.values()]

    def max_open_files(self) -> int:
        return max(usage.open_files for samples in self.samples.values() for usage in samples)


def usage_of(pid: int) -> Optional[Usage]:
    """Returns the resources of a process; None if it has exited."""
    try:
        return Usage(status_mib(pid, "VmRSS"), len(os.listdir(f"/proc/{pid}/fd")))
    except OSError:
        return None


def status_mib(pid: int, name: str) -> float:
    """Reads a size from /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def free_ports(count: int) -> int:
    """Returns the first of `count` consecutive free ports."""
    def is_free(port: int) -> bool:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                return False
        return True

    for _ in range(200):
        first = random.choice(PORTS[:-count])
        if all(is_free(first + n) for n in range(count)):
            return first
    raise ScriptError("there are no free ports")
