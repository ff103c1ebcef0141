"""Commands that end with the block that started them, and what a script waits for."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Callable, Optional

from shop import ScriptError

HOST = "127.0.0.1"
# Below the ephemeral ports, which other connections use.
PORTS = range(20_000, 30_000)
# Until a terminated command has removed what it made.
END_TIMEOUT_S = 120


class Process:
    """A command that runs during the block. Its session is its own: a signal to the script's process
    group would not let it remove what it made."""

    def __init__(self, command: list, is_group_ended: bool = True,
                 end_timeout_s: float = END_TIMEOUT_S, **options) -> None:
        self.command = [str(part) for part in command]
        self.is_group_ended, self.end_timeout_s = is_group_ended, end_timeout_s
        self.output = tempfile.TemporaryFile()
        self.options = {"stdin": subprocess.DEVNULL, "stdout": self.output,
                        "stderr": subprocess.STDOUT, "start_new_session": True, **options}

    def __enter__(self) -> Process:
        self.popen = subprocess.Popen(self.command, **self.options)
        return self

    def __exit__(self, *_) -> None:
        self.end()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends it with a signal, and kills it if that takes too long; returns its exit code."""
        if self.popen.poll() is None:
            # A shell acts on a signal only when the command that it waits for has ended.
            self.signal_group(number) if self.is_group_ended else self.popen.send_signal(number)
        try:
            return self.popen.wait(self.end_timeout_s)
        except subprocess.TimeoutExpired:
            self.signal_group(signal.SIGKILL)
            return self.popen.wait()

    def signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def wait(self, timeout_s: Optional[float] = None) -> int:
        """Returns its exit code; raises if it takes longer."""
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ScriptError(f"{' '.join(self.command)} took longer than {timeout_s} s:\n"
                              f"{self.last_lines()}") from None

    def printed(self) -> str:
        # Not by a seek: the command writes where the offset is.
        number = self.output.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def last_lines(self) -> str:
        return "\n".join(self.printed().strip().splitlines()[-25:])


def until(what: str, holds: Callable[[], bool], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            raise ScriptError(f"not within {timeout_s} s: {what}")
        time.sleep(0.1)


# The ports that this script has chosen, with what claims them among processes.
CLAIMED: dict[int, Optional[socket.socket]] = {}


def claim(ports: range) -> bool:
    """Claims all of the ports, or none, among the programs of Holdfast while this one runs; see
    crates/holdfast-services/src/ports.rs."""
    claims: dict[int, Optional[socket.socket]] = {}
    for port in ports:
        if port in CLAIMED or not is_free(port) or not claim_among_processes(port, claims):
            for claimed in filter(None, claims.values()):
                claimed.close()
            return False
    CLAIMED.update(claims)
    return True


def claim_among_processes(port: int, claims: dict[int, Optional[socket.socket]]) -> bool:
    claims[port] = None
    if sys.platform != "linux":
        return True
    claimed = claims[port] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claimed.bind(f"\0holdfast-port-{port}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    return True


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> int:
    """Returns the first of `count` consecutive free ports, which no other call returns."""
    for _ in range(200):
        first = random.choice(PORTS[:-count])
        if claim(range(first, first + count)):
            return first
    raise ScriptError(f"there are no free ports from {PORTS[0]} to {PORTS[-1]}: end what listens "
                      "there, and try again")
