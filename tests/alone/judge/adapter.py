#!/usr/bin/env python3
"""Adapters for the tests of `holdfast judge`: adapter.py MODE.

One is right (`flock`, in LOCK_FOLDER), the others are wrong in one way each, or no adapters at all.
Standard library only. Every request runs in a thread of its own, with a connection to Redis per
call.
"""

import contextlib
import fcntl
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

MODE = sys.argv[1]
out_lock = threading.Lock()
setup = {}
# By the id of a request to acquire: whether it was cancelled.
cancelled = {}
CANCELS = MODE in ("flock", "owner", "cancel-deletes")
POOLED = MODE in ("pooled", "pooled-fences", "often-right")
# Connections that no command uses. Those of a command whose answer came too late are closed.
pool = []


def print_line(message):
    with out_lock:
        sys.stdout.write(message + "\n")
        sys.stdout.flush()


def answer(request, **fields):
    print_line(json.dumps({"id": request["id"], **fields}))


class Redis:
    """One connection to Redis, which is closed after its commands, or goes back to the pool."""

    def __init__(self):
        url = urllib.parse.urlparse(setup["redis_url"])
        self.socket = socket.create_connection((url.hostname, url.port), timeout=5)
        self.file = self.socket.makefile("rb")
        self.command("AUTH", url.password)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if POOLED and error is None:
            pool.append(self)
        else:
            self.file.close()
            self.socket.close()

    def command(self, *words):
        parts = [str(word).encode() for word in words]
        sent = b"*%d\r\n" % len(parts)
        sent += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(sent)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise ConnectionError(rest.decode())
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.file.read(size + 2)[:-2].decode()
        return int(rest) if kind == b":" else rest.decode()


def poll(request, attempt):
    """Repeats `attempt` until it returns a grant, for as long as the request may wait."""
    until = time.monotonic() + request["wait_ms"] / 1000
    while True:
        granted = attempt()
        if granted:
            return granted
        if request["id"] in cancelled and cancelled[request["id"]].is_set():
            return {"ok": False, "reason": "cancelled"}
        if time.monotonic() >= until:
            return {"ok": False, "reason": "timeout"}
        time.sleep(random.uniform(0.005, 0.015))


def connection():
    try:
        return pool.pop()
    except IndexError:
        return Redis()


class NoLock:
    """Grants after a request to Redis; as `constant-fence` with the same fence each time."""

    fencing = MODE == "constant-fence"

    def acquire(self, request):
        if self.fencing:
            with connection() as redis:
                redis.command("GET", request["key"])
        return {"ok": True, "lease": "none", "fence": 1}

    def release(self, request):
        return {"ok": True}


class Setnx:
    """SET NX PX with an owner, which is compared at the release. `wrong` names what is missing."""

    def __init__(self, wrong):
        self.wrong = wrong
        self.fencing = wrong == "fences"
        self.script = None

    def acquire(self, request):
        if self.wrong == "script" and self.script is None:
            with connection() as redis:
                delete = "return redis.call('del', KEYS[1])"
                self.script = redis.command("SCRIPT", "LOAD", delete)
        if self.wrong == "starving" and setup["worker"] == 1:
            time.sleep(request["wait_ms"] / 1000)
            return {"ok": False, "reason": "timeout"}
        key = request["key"]
        lease = f"{os.getpid()}-{request['id']}"

        def attempt():
            try:
                with connection() as redis:
                    words = [] if self.wrong == "expiry" else ["PX", setup["ttl_ms"]]
                    if redis.command("SET", key, lease, "NX", *words) is None:
                        return None
                    granted = {"ok": True, "lease": lease}
                    if self.fencing:
                        granted["fence"] = redis.command("INCR", key + ":fence")
                    return granted
            except OSError as error:
                if self.wrong == "busy":
                    return {"ok": False, "reason": "busy"}
                return {"ok": False, "reason": "error", "detail": str(error)}

        answered = poll(request, attempt)
        if self.wrong == "cancel" and answered.get("reason") == "cancelled":
            # It cleans up what it might have, and does not look whose it is.
            with connection() as redis:
                redis.command("DEL", key)
        return answered

    def release(self, request):
        try:
            with connection() as redis:
                if self.wrong == "script":
                    words = ("EVALSHA", self.script, 1, request["key"], request["lease"])
                    redis.command(*words)
                    return {"ok": True}
                if self.wrong == "owner":
                    redis.command("DEL", request["key"])
                    return {"ok": True}
                if self.wrong == "expiry":
                    # Another key, which expires by itself.
                    words = ("PX", setup["ttl_ms"])
                    redis.command("SET", request["key"] + ":last", "x", *words)
                script = (
                    "if redis.call('get', KEYS[1]) == ARGV[1] then"
                    " return redis.call('del', KEYS[1]) else return 0 end"
                )
                words = ("EVAL", script, 1, request["key"], request["lease"])
                deleted = redis.command(*words)
        except OSError as error:
            return {"ok": False, "reason": "error", "detail": str(error)}
        return {"ok": True} if deleted else {"ok": False, "reason": "lost"}


class Watchdog(Setnx):
    """A lease that is renewed until its release."""

    def __init__(self):
        super().__init__(None)
        self.released = {}

    def acquire(self, request):
        granted = super().acquire(request)
        if granted["ok"]:
            released = self.released[granted["lease"]] = threading.Event()
            arguments = (request["key"], granted["lease"], released)
            threading.Thread(target=self.renew, args=arguments, daemon=True).start()
        return granted

    def renew(self, key, lease, released):
        script = (
            "if redis.call('get', KEYS[1]) == ARGV[1] then"
            " return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
        )
        while not released.wait(setup["ttl_ms"] / 4000):
            try:
                with connection() as redis:
                    redis.command("EVAL", script, 1, key, lease, setup["ttl_ms"])
            except OSError:
                pass

    def release(self, request):
        self.released.pop(request["lease"]).set()
        return super().release(request)


class RenewsBlindly(Setnx):
    """A lease that is written again and again, whoever has it, also after its release."""

    def acquire(self, request):
        granted = super().acquire(request)
        if granted["ok"]:
            arguments = (request["key"], granted["lease"])
            threading.Thread(target=self.renew, args=arguments, daemon=True).start()
        return granted

    def renew(self, key, lease):
        while True:
            with contextlib.suppress(OSError), connection() as redis:
                redis.command("SET", key, lease, "PX", setup["ttl_ms"])
            time.sleep(setup["ttl_ms"] / 4000)


class TellsLoss(Setnx):
    """Tells its client when the lease has ended: mostly too late, after its release."""

    def acquire(self, request):
        granted = super().acquire(request)
        if granted["ok"]:
            message = json.dumps({"lost": granted["lease"]})
            timer = threading.Timer(setup["ttl_ms"] / 1000, print_line, [message])
            timer.daemon = True
            timer.start()
        return granted


class OftenRight(Setnx):
    """Grants every 150th time, whoever has the lock."""

    def acquire(self, request):
        with connection() as redis:
            if redis.command("INCR", request["key"] + ":count") % 150 == 0:
                return {"ok": True, "lease": "nobody's"}
        return super().acquire(request)


class WallFence(Setnx):
    """Its fence is the time of the client's clock."""

    def __init__(self):
        super().__init__(None)
        self.fencing = True

    def acquire(self, request):
        granted = super().acquire(request)
        return granted | {"fence": int(time.time() * 1e6)} if granted["ok"] else granted


class Session:
    """A lock of a server (LOCK_URL) that ends with the connection, which the client does not look at."""

    fencing = False

    def __init__(self):
        self.connections = {}

    def acquire(self, request):
        host, port = os.environ["LOCK_URL"].removeprefix("lock://").split(":")
        connection = socket.create_connection((host, int(port)))
        connection.settimeout(request["wait_ms"] / 1000)
        try:
            connection.sendall(request["key"].encode() + b"\n")
            granted = connection.recv(2) == b"ok"
        except TimeoutError:
            granted = False
        except OSError as error:
            return {"ok": False, "reason": "error", "detail": str(error)}
        if not granted:
            connection.close()
            return {"ok": False, "reason": "timeout"}
        self.connections[str(request["id"])] = connection
        return {"ok": True, "lease": str(request["id"])}

    def release(self, request):
        self.connections.pop(request["lease"]).close()
        return {"ok": True}


def serve_sessions():
    """The server of `Session`: a lock per key, held by a connection. Prints its port."""
    held = {}

    def serve(connection):
        key = connection.makefile().readline()
        lock = held.setdefault(key, threading.Lock())
        with lock, contextlib.suppress(OSError):
            connection.sendall(b"ok")
            connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection = server.accept()[0]
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


class WallClock:
    """A key with the time of its expiry by the clients' clocks, and no expiry in Redis."""

    fencing = False

    def acquire(self, request):
        key = request["key"]

        def attempt():
            now = time.time()
            expiry = repr(now + setup["ttl_ms"] / 1000)
            with connection() as redis:
                if redis.command("SET", key, expiry, "NX"):
                    return {"ok": True, "lease": expiry}
                found = redis.command("GET", key)
                if found is None or float(found) > now:
                    return None
                # Expired: the first one to replace it has the lock.
                replaced = redis.command("GETSET", key, expiry)
                return {"ok": True, "lease": expiry} if replaced == found else None

        try:
            return poll(request, attempt)
        except OSError as error:
            return {"ok": False, "reason": "error", "detail": str(error)}

    def release(self, request):
        with connection() as redis:
            if redis.command("GET", request["key"]) != request["lease"]:
                return {"ok": False, "reason": "lost"}
            redis.command("DEL", request["key"])
            return {"ok": True}


class Flock:
    """The kernel's lock on a file. It ends with its process, and has neither lease nor Redis."""

    fencing = False

    def __init__(self):
        self.files = {}

    def acquire(self, request):
        folder = os.environ["LOCK_FOLDER"]
        file = open(os.path.join(folder, request["key"].replace(":", "-")), "w")

        def attempt():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            self.files[request["id"]] = file
            return {"ok": True, "lease": str(request["id"])}

        granted = poll(request, attempt)
        if not granted["ok"]:
            file.close()
        return granted

    def release(self, request):
        self.files.pop(int(request["lease"])).close()
        return {"ok": True}


def ask_in_background():
    """Asks Redis now and then, whether anybody wants the lock or not."""
    while True:
        with contextlib.suppress(OSError), connection() as redis:
            redis.command("GET", "anything")
        time.sleep(0.02)


def misbehave(request):
    """The modes that are no adapters: what they do at a request to acquire."""
    if MODE == "exits":
        sys.stderr.write("adapter: out of paper\n")
        sys.stderr.flush()
        os._exit(3)
    elif MODE == "garbage":
        print("ready to serve!", flush=True)
    elif MODE == "unfinished":
        os.write(1, json.dumps({"id": request["id"], "ok": True}).encode())
        time.sleep(3600)
    elif MODE == "twice":
        answer(request, ok=False, reason="busy")
        answer(request, ok=False, reason="busy")
    elif MODE == "floods":
        while True:
            os.write(1, b"x" * 65536)
    elif MODE == "odd-reason":
        answer(request, ok=False, reason="maybe")
    elif MODE == "only-errors":
        answer(request, ok=False, reason="error", detail="out of quorum")
    elif MODE == "only-busy":
        answer(request, ok=False, reason="busy")
    elif MODE == "no-fence":
        answer(request, ok=True, lease="a")
    elif MODE == "leaks":
        os._exit(1)
    elif MODE == "hangs":
        time.sleep(3600)
    else:
        return False
    return True


def leak():
    """Starts a process of its own session, which does not end with the adapter's group."""
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    with open(os.environ["LEAK_FILE"], "a") as file:
        file.write(f"{child.pid}\n")


LOCKS = {
    "constant-fence": NoLock,
    "owner": lambda: Setnx(None),
    "pooled": lambda: Setnx(None),
    "pooled-fences": lambda: Setnx("fences"),
    "no-owner": lambda: Setnx("owner"),
    "busy-when-away": lambda: Setnx("busy"),
    "fences-repeat": lambda: Setnx("fences"),
    "cancel-deletes": lambda: Setnx("cancel"),
    "script-once": lambda: Setnx("script"),
    "never-freed": lambda: Setnx("expiry"),
    "starving": lambda: Setnx("starving"),
    "watchdog": Watchdog,
    "renews-blindly": lambda: RenewsBlindly(None),
    "tells-loss": lambda: TellsLoss(None),
    "often-right": lambda: OftenRight(None),
    "wall-fence": WallFence,
    "session": Session,
    "wall-clock": WallClock,
    "flock": Flock,
}


def main():
    lock = LOCKS.get(MODE, NoLock)()
    fencing = lock.fencing or MODE == "no-fence"

    def serve(request):
        if request["op"] == "acquire" and not misbehave(request):
            answer(request, **lock.acquire(request))
        elif request["op"] == "release":
            answer(request, **lock.release(request))

    asks = "ASKS" in os.environ
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "acquire" and asks:
            asks = False
            threading.Thread(target=ask_in_background, daemon=True).start()
        if request["op"] == "init":
            setup.update(request)
            time.sleep(float(os.environ.get("START_S", 0)))
            if "LEAK_FILE" in os.environ:
                leak()
            answer(request, ok=True, name=f"test {MODE}", fencing=fencing, renews=False,
                   cancels=CANCELS)
        elif request["op"] == "cancel":
            cancelled.get(request["request"], threading.Event()).set()
            answer(request, ok=True)
        else:
            if CANCELS and request["op"] == "acquire":
                cancelled[request["id"]] = threading.Event()
            threading.Thread(target=serve, args=(request,), daemon=True).start()
    if "STAYS" in os.environ:
        # What its threads do for the lock goes on without the judge.
        threading.Event().wait()


serve_sessions() if MODE == "session-server" else main()
