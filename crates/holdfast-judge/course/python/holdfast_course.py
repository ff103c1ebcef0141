"""What `holdfast course` brings for lock.py: a Redis, a Postgres, and the judge's protocol.

    redis("SET", key, token, "NX", "PX", 500)    the reply: str, int, list or None
    postgres("select nextval('fences')")         the first value of the first row, as str, or None
    sleep(seconds)                               instead of time.sleep: a cancelled request ends here

Every call may raise: ConnectionError if the server is away, RuntimeError with the server's own words
if it refuses a command, and Cancelled. Threads may call them at the same time.

There is a sequence `fences` in Postgres. For a library of your choice, HOLDFAST_REDIS_URL and
HOLDFAST_DATABASE_URL in the environment are the addresses of both. What lock.py writes to stderr is
shown with the check.

You need not change this file.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import queue
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
import urllib.parse
from pathlib import Path

__all__ = ["Cancelled", "postgres", "redis", "sleep"]

LEVEL = int(os.environ.get("HOLDFAST_COURSE_LEVEL", "1"))
FENCE_LEVEL = 5


class Cancelled(BaseException):
    """The caller gave up. Raised by the next call of this module in the thread of that request;
    catch it only to clean up, and raise it again."""


# ---------------------------------------------------------------- requests


class Request:
    """A call of `acquire`, or of the `release` that follows it in the same thread."""

    def __init__(self):
        self.is_cancelled = threading.Event()
        self.connection = None

    def check(self):
        if self.is_cancelled.is_set():
            # Once: what cleans up may use the servers.
            self.is_cancelled = threading.Event()
            raise Cancelled


_local = threading.local()


def _request():
    if not hasattr(_local, "request"):
        # A thread of lock.py itself, which nobody cancels.
        _local.request = Request()
    return _local.request


def sleep(seconds):
    request = _request()
    request.is_cancelled.wait(max(0, seconds))
    request.check()


# ---------------------------------------------------------------- servers


class _Server:
    """Connections to one server. A call has one for itself: a reply may take long."""

    def __init__(self, connect):
        self.connect = connect
        self.idle = queue.LifoQueue()

    def call(self, *arguments):
        request = _request()
        request.check()
        try:
            connection = self.idle.get_nowait()
        except queue.Empty:
            connection = self.connect()
        request.connection = connection.socket
        try:
            reply = connection.call(*arguments)
        except OSError as error:
            connection.socket.close()
            request.check()
            self.forget()
            raise ConnectionError(str(error)) from None
        except BaseException:
            connection.socket.close()
            raise
        finally:
            request.connection = None
        self.idle.put(connection)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def forget(self):
        """After a failure: the other idle connections are of the same server."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.idle.get_nowait().socket.close()


class _Connection:
    def __init__(self, url):
        self.socket = socket.create_connection((url.hostname, url.port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A reply to BLPOP may take as long as its caller wants.
        self.socket.settimeout(60)
        self.file = self.socket.makefile("rb")

    def read(self, length):
        data = self.file.read(length)
        if len(data) < length:
            raise ConnectionError("the server closed the connection")
        return data


class _Redis(_Connection):
    def __init__(self, url):
        super().__init__(url)
        self.call("AUTH", urllib.parse.unquote(url.password))

    def call(self, *arguments):
        words = [str(argument).encode() for argument in arguments]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(w), w) for w in words]
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        length = int(rest)
        if length < 0:
            return None
        if kind == b"$":
            return self.read(length + 2)[:-2].decode(errors="replace")
        return [self.reply() for _ in range(length)]


class _Postgres(_Connection):
    """The simple query protocol, with a password by SCRAM-SHA-256."""

    def __init__(self, url):
        super().__init__(url)
        fields = ("user", url.username, "database", url.path[1:], "")
        body = struct.pack("!I", 196608) + "\0".join(fields).encode() + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self.authenticate(urllib.parse.unquote(url.password))
        while self.receive()[0] != b"Z":
            pass

    def send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def receive(self):
        kind = self.read(1)
        (length,) = struct.unpack("!I", self.read(4))
        body = self.read(length - 4)
        if kind == b"E":
            fields = {field[:1]: field[1:].decode() for field in body.split(b"\0")}
            return kind, RuntimeError(fields.get(b"M", "an error without a message"))
        return kind, body

    def authenticate(self, password):
        nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        first = f"n=,r={nonce}"
        self.expect(10)
        message = f"n,,{first}".encode()
        self.send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(message)) + message)
        challenge = self.expect(11).decode()
        given = dict(part.split("=", 1) for part in challenge.split(","))
        salt, rounds = base64.b64decode(given["s"]), int(given["i"])
        key = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
        client = hmac.digest(key, b"Client Key", "sha256")
        last = f"c=biws,r={given['r']}"
        signed = f"{first},{challenge},{last}".encode()
        signature = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client, signature))
        self.send(b"p", f"{last},p={base64.b64encode(proof).decode()}".encode())
        self.expect(12)
        self.expect(0)

    def expect(self, code):
        kind, body = self.receive()
        if kind != b"R" or struct.unpack("!I", body[:4]) != (code,):
            raise ConnectionError(f"Postgres did not let us in: {body}")
        return body[4:]

    def call(self, sql):
        self.send(b"Q", sql.encode() + b"\0")
        value = error = None
        has_row = False
        while True:
            kind, body = self.receive()
            if kind == b"E":
                error = body
            elif kind == b"D" and not has_row:
                has_row = True
                value = self.first_value(body)
            elif kind == b"Z":
                return error or value

    @staticmethod
    def first_value(row):
        count, length = struct.unpack("!hi", row[:6])
        return row[6:6 + length].decode() if count and length >= 0 else None


def redis(*arguments):
    return _servers["redis"].call(*arguments)


def postgres(sql):
    return _servers["postgres"].call(sql)


# ---------------------------------------------------------------- the judge's protocol

_servers = {}
_requests = {}
_releases = {}
_answers = os.fdopen(os.dup(1), "w")
_output = threading.Lock()


def _answer(request, **fields):
    with _output:
        _answers.write(json.dumps({"id": request["id"], **fields}) + "\n")
        _answers.flush()


def _stop(message):
    """Ends the check, and says why."""
    os.write(2, f"{message}\n".encode())
    os._exit(3)


class _NoOutput:
    """stdout of lock.py: the judge reads answers there."""

    # Of each thread: print writes its arguments one by one.
    written = threading.local()

    def write(self, text):
        self.written.text = getattr(self.written, "text", "") + text
        if "\n" not in text:
            return
        here = Path(__file__).parent
        frames = [frame for frame in traceback.extract_stack()
                  if Path(frame.filename).parent == here and frame.filename != __file__]
        place = f"lock.py, line {frames[-1].lineno}" if frames else "lock.py"
        _stop(f"{place}: it prints {self.written.text.strip()!r} to stdout, which belongs to the judge. "
              "Use print(…, file=sys.stderr)")

    def flush(self):
        pass


def _place(error):
    """Where in lock.py an exception comes from."""
    here = Path(__file__).parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if Path(frame.filename).parent == here and frame.filename != __file__]
    return f"lock.py, line {frames[-1].lineno}: " if frames else "lock.py: "


def _missing(error):
    """Says how to get a module."""
    return (f"{_place(error)}it imports {error.name}, which is not installed: python3 -m pip install "
            f"{error.name}, or use redis and postgres of holdfast_course")


def _error(request, error):
    place = _place(error)
    if isinstance(error, ModuleNotFoundError):
        _stop(_missing(error))
    if not isinstance(error, (ConnectionError, RuntimeError)):
        _stop(f"{place}{type(error).__name__}: {error}")
    # A server that is away is no fault of the lock.
    detail = f"{place}{type(error).__name__}: {error}".splitlines()[0][:300]
    _answer(request, ok=False, reason="error", detail=detail)


def _grant(request, held, ttl_ms):
    is_pair = isinstance(held, tuple) and len(held) == 2 and isinstance(held[1], int)
    if LEVEL < FENCE_LEVEL:
        # A lock of a later level is checked again: its fence does not matter here.
        return held[0] if is_pair else held, {}
    if not is_pair:
        _stop(f"acquire returned {held!r}. From level {FENCE_LEVEL} on it returns a pair: the token, "
              "and the fence, an int")
    return held[0], {"fence": held[1]}


def _serve_lock(lock, message, ttl_ms):
    """Acquires, answers, and serves the request to release."""
    _local.request = _requests[message["id"]]
    key = message["key"]
    try:
        held = lock.acquire(key, message["wait_ms"] / 1000, ttl_ms)
    except Cancelled:
        return _answer(message, ok=False, reason="cancelled")
    except BaseException as error:  # also that of sys.exit
        return _error(message, error)
    finally:
        _requests.pop(message["id"], None)
    if held is None or held is False:
        return _answer(message, ok=False, reason="timeout")
    token, fence = _grant(message, held, ttl_ms)

    name, releases = f"{os.getpid()}-{message['id']}", queue.SimpleQueue()
    _releases[name] = releases
    _answer(message, ok=True, lease=name, **fence)
    message = releases.get()
    # Another one: a late cancellation of `acquire` has come to nothing.
    _local.request = _requests[message["id"]] = Request()
    try:
        released = lock.release(key, token)
    except Cancelled:
        return _answer(message, ok=False, reason="cancelled")
    except BaseException as error:  # also that of sys.exit
        return _error(message, error)
    finally:
        _requests.pop(message["id"], None)
    if not isinstance(released, bool):
        _stop(f"release returned {released!r}. It returns True, or False if the lock was lost before")
    _answer(message, **({"ok": True} if released else {"ok": False, "reason": "lost"}))


def _cancel(id):
    request = _requests.get(id)
    if request is None:
        return
    request.is_cancelled.set()
    connection = request.connection
    if connection is not None:
        # Its reply is not waited for.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _set_up(redis_address, database_address):
    redis_url, database_url = (urllib.parse.urlsplit(address)
                               for address in (redis_address, database_address))
    _servers["redis"] = _Server(lambda: _Redis(redis_url))
    _servers["postgres"] = _Server(lambda: _Postgres(database_url))
    os.environ["HOLDFAST_REDIS_URL"] = redis_address
    os.environ["HOLDFAST_DATABASE_URL"] = database_address
    # As `holdfast_course`: lock.py has to see the same module.
    sys.modules["holdfast_course"] = sys.modules["__main__"]


def _is_of_lock(error):
    """Whether lock.py itself raised it, not what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename).name == "lock.py" and error.__context__ is None


def _import_lock(has_servers=True):
    try:
        import lock
    except SyntaxError as error:
        _stop(f"lock.py, line {error.lineno}: {error.msg}")
    except ModuleNotFoundError as error:
        if error.name == "lock":
            _stop("lock.py is missing")
        _stop(_missing(error))
    except BaseException as error:
        if not has_servers and not _is_of_lock(error):
            return None
        _stop(f"{_place(error)}{type(error).__name__}: {error}")
    for name in ("acquire", "release"):
        if not callable(getattr(lock, name, None)):
            _stop(f"lock.py has no function {name}")
    return lock


def main():
    sys.stdout = _NoOutput()
    if sys.argv[1:] == ["--check"]:
        # Before there are servers: at this port is none.
        _set_up("redis://:x@127.0.0.1:1/0", "postgres://x:x@127.0.0.1:1/x")
        _import_lock(has_servers=False)
        os._exit(0)
    ttl_ms = lock = None
    for line in sys.stdin:
        message = json.loads(line)
        operation = message["op"]
        if operation == "init":
            _set_up(message["redis_url"], message["database_url"])
            ttl_ms = message["ttl_ms"]
            lock = _import_lock()
            _answer(message, ok=True, name="lock.py", fencing=LEVEL >= FENCE_LEVEL, renews=LEVEL >= 4,
                    cancels=True)
        elif operation == "acquire":
            _requests[message["id"]] = Request()
            threading.Thread(target=_serve_lock, args=(lock, message, ttl_ms), daemon=True).start()
        elif operation == "cancel":
            _cancel(message["request"])
            _answer(message, ok=True)
        else:
            releases = _releases.pop(message["lease"], None)
            if releases is not None:
                releases.put(message)
    os._exit(0)  # also what waits for the lock


if __name__ == "__main__":
    main()
