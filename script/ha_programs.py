"""Programs of script/ha: each ends with the script, also when that is killed."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from integration import END_SIGNALS, Failed
from processes import until

END_TIMEOUT_S = 20
SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36


# ---------------------------------------------------------------- processes


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def stat_of(pid):
    """The state and the parent of a process; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return None
    return fields[0], int(fields[1])


def is_running(pid):
    found = stat_of(pid)
    return found is not None and found[0] != "Z"


def descendants(pid):
    """Processes that this one has started, directly or not."""
    children = {}
    for entry in os.listdir("/proc"):
        found = stat_of(entry) if entry.isdigit() else None
        if found:
            children.setdefault(found[1], []).append(int(entry))
    found, ahead = [], [pid]
    while ahead:
        own = children.get(ahead.pop(), [])
        found += own
        ahead += own
    return found


def send_to(pids, number):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_descendants():
    """Kills what this process has started, also what has become a daemon: such a process is a child
    of the nearest subreaper. Nothing else can be among them."""
    for _ in range(100):
        left = [pid for pid in descendants(os.getpid()) if is_running(pid)]
        if not left:
            return
        send_to(left, signal.SIGKILL)
        time.sleep(0.05)
        reap_orphans()


def reap_orphans(name=None):
    """Reaps children that are zombies; with a name, those alone."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and stat_of(entry) == ("Z", os.getpid()) \
                and name in (None, name_of(entry)):
            with suppress(ChildProcessError):
                os.waitpid(int(entry), os.WNOHANG)


def name_of(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()


def guarded(main):
    """Runs `main` in a process of its own, and returns its exit code. Whichever of the two is killed,
    the other ends all that was started."""
    prctl(SET_SUBREAPER, 1)
    guard = os.getpid()
    sys.stdout.flush()
    worker = os.fork()
    if worker == 0:
        # A ^C reaches the guard alone, which passes it on.
        os.setsid()
        prctl(SET_SUBREAPER, 1)
        prctl(SET_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != guard:
            os._exit(1)
        return main()

    for number in END_SIGNALS:
        signal.signal(number, lambda number, _: send_to([worker], number))
    _, status = os.waitpid(worker, 0)
    kill_descendants()
    sys.exit(os.waitstatus_to_exitcode(status) % 256)


# ---------------------------------------------------------------- programs


def as_user(user):
    """The words before a command that is to run as this user of the services, and to end with us."""
    words = ["setpriv", "--pdeathsig", "KILL"]
    if os.geteuid() == 0:
        words += [f"--reuid={user}", f"--regid={user}", "--init-groups"]
    return words


class Program:
    """A command in a folder of its own, where its log is."""

    def __init__(self, name, folder, command, env=None, user=None, death_signal="KILL"):
        self.name, self.folder, self.popen = name, folder, None
        words = as_user(user) if user else ["setpriv", "--pdeathsig", "KILL"]
        words[2] = death_signal
        self.command = [*words, *map(str, command)]
        self.log = folder / f"{name}.log"
        # Settings of other servers do not apply to these.
        self.env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(folder),
                    **(env or {})}

    def start(self):
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(self.command, cwd=self.folder, env=self.env, stdout=log,
                                          stderr=log, stdin=subprocess.DEVNULL,
                                          start_new_session=True)

    @property
    def pid(self):
        return self.popen.pid

    def is_running(self):
        return self.popen is not None and self.popen.poll() is None

    def send(self, number):
        if self.is_running():
            self.popen.send_signal(number)

    def wait(self, timeout_s=END_TIMEOUT_S):
        """Waits for its end, and kills it after that time."""
        if self.popen is None:
            return
        try:
            self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def end(self, number=signal.SIGTERM):
        self.send(signal.SIGCONT)
        self.send(number)
        self.wait()

    def check_runs(self):
        if not self.is_running():
            raise Failed(f"{self.name} ended: see {self.log}\n{self.last_lines()}")

    def last_lines(self, count=15):
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-count:])


class Postgres:
    """The Postgres that a Patroni runs. Known by its data folder, in which it works."""

    def __init__(self, data):
        self.data = data

    def postmaster(self):
        """Its process; None if there is none that works in this folder."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            is_own = os.readlink(f"/proc/{pid}/cwd") == str(self.data)
        except (OSError, ValueError, IndexError):
            return None
        return pid if is_own and is_running(pid) else None

    def processes(self):
        pid = self.postmaster()
        return [pid, *descendants(pid)] if pid else []

    def send(self, number):
        send_to(self.processes(), number)

    def kill(self):
        pids = self.processes()
        send_to(pids, signal.SIGKILL)
        until("Postgres has ended", lambda: not any(map(is_running, pids)), 10)

    def senders(self):
        """The processes that send the log to standbys."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                if b"walsender" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found


@contextmanager
def reaper():
    """Reaps each Postgres whose Patroni has started it as a daemon, during the block: Patroni would
    take the zombie for one that runs. No other children, whose exit codes somebody waits for."""
    ended = threading.Event()

    def reap():
        while not ended.wait(0.1):
            reap_orphans("postgres")

    thread = threading.Thread(target=reap, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def find_program(name, *places):
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", *places]))
    return found
