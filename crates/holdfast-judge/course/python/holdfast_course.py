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

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path

__all__ = ["Cancelled", "postgres", "redis", "sleep"]

HERE = Path(__file__).parent
LEVEL = int(os.environ.get("HOLDFAST_COURSE_LEVEL", "1"))
FENCE_LEVEL = 5


class Cancelled(BaseException):
    """The caller gave up. Raised by the next call of this module in the thread of that request;
    catch it only to clean up, and raise it again."""


# ---------------------------------------------------------------- requests and their calls


class Request:
    """A call of `acquire`, or of the `release` that follows it in the same thread."""

    def __init__(self, id=None):
        self.id = id
        self.is_cancelled = threading.Event()

    def check(self):
        if self.is_cancelled.is_set():
            # Once: what cleans up may use the servers.
            self.is_cancelled.clear()
            raise Cancelled


_local = threading.local()
_requests = {}
_releases = {}
# Of each call in flight, where its reply arrives.
_calls = {}
_last_call = 0
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
# Also the order in which the judge sees calls and cancellations.
_output = threading.Lock()


def _request():
    if not hasattr(_local, "request"):
        # A thread of lock.py itself, which nobody cancels.
        _local.request = Request()
    return _local.request


def sleep(seconds):
    request = _request()
    request.is_cancelled.wait(max(0, seconds))
    request.check()


def redis(*arguments):
    return _call(op="redis", words=[str(argument) for argument in arguments])


def postgres(sql):
    return _call(op="postgres", sql=sql)


def _call(**call):
    """Lets the judge's worker call a server, by a connection for this call alone."""
    global _last_call
    request, replies = _request(), queue.SimpleQueue()
    with _output:
        request.check()
        _last_call += 1
        _calls[_last_call] = replies
        _write(call=_last_call, request=request.id, **call)
    reply = replies.get()
    if "value" in reply:
        return reply["value"]
    if "error" in reply:
        raise RuntimeError(reply["error"])
    request.check()
    raise ConnectionError(reply["away"])


def _cancel(message):
    with _output:
        request = _requests.get(message["request"])
        if request is not None:
            request.is_cancelled.set()
        # With this answer, the judge closes the connection on which the request waits.
        _write(id=message["id"], ok=True)


# ---------------------------------------------------------------- the judge's protocol


def _write(**message):
    _answers.write(json.dumps(message, ensure_ascii=False) + "\n")
    _answers.flush()


def _answer(request, **fields):
    with _output:
        _write(id=request["id"], **fields)


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
        _stop(f"{_where(traceback.extract_stack())}it prints {self.written.text.strip()!r} to stdout, "
              "which belongs to the judge. Use print(…, file=sys.stderr)")

    def flush(self):
        pass


def _where(frames):
    """The line of lock.py among these frames."""
    frames = [frame for frame in frames
              if Path(frame.filename).parent == HERE and frame.filename != __file__]
    return f"lock.py, line {frames[-1].lineno}: " if frames else "lock.py: "


def _place(error):
    return _where(traceback.extract_tb(error.__traceback__))


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


def _grant(held):
    is_pair = isinstance(held, tuple) and len(held) == 2 and isinstance(held[1], int)
    if LEVEL < FENCE_LEVEL:
        # A lock of a later level is checked again: its fence does not matter here.
        return held[0] if is_pair else held, {}
    if not is_pair:
        _stop(f"acquire returned {held!r}. From level {FENCE_LEVEL} on it returns a pair: the token, "
              "and the fence, an int")
    return held[0], {"fence": held[1]}


def _serve_lock(message, ttl_ms):
    """Acquires, answers, and serves the request to release."""
    import lock

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
    token, fence = _grant(held)

    name, releases = f"{os.getpid()}-{message['id']}", queue.SimpleQueue()
    _releases[name] = releases
    _answer(message, ok=True, lease=name, **fence)
    message = releases.get()
    # Another one: a late cancellation of `acquire` has come to nothing.
    _local.request = _requests[message["id"]] = Request(message["id"])
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


def _import_lock():
    try:
        import lock
    except SyntaxError as error:
        _stop(f"lock.py, line {error.lineno}: {error.msg}")
    except ModuleNotFoundError as error:
        if error.name == "lock":
            _stop("lock.py is missing")
        _stop(_missing(error))
    except BaseException as error:
        _stop(f"{_place(error)}{type(error).__name__}: {error}")
    for name in ("acquire", "release"):
        if not callable(getattr(lock, name, None)):
            _stop(f"lock.py has no function {name}")


def _receive(ttl_ms):
    for line in sys.stdin:
        message = json.loads(line)
        operation = message["op"]
        if operation == "reply":
            _calls.pop(message["call"]).put(message)
        elif operation == "acquire":
            _requests[message["id"]] = Request(message["id"])
            threading.Thread(target=_serve_lock, args=(message, ttl_ms), daemon=True).start()
        elif operation == "cancel":
            _cancel(message)
        else:
            releases = _releases.pop(message["lease"], None)
            if releases is not None:
                releases.put(message)
    os._exit(0)  # also what waits for the lock


def main():
    sys.stdout = _NoOutput()
    sys.stdin.reconfigure(encoding="utf-8")
    message = json.loads(sys.stdin.readline())
    os.environ["HOLDFAST_REDIS_URL"] = message["redis_url"]
    os.environ["HOLDFAST_DATABASE_URL"] = message["database_url"]
    # As `holdfast_course`: lock.py has to see the same module.
    sys.modules["holdfast_course"] = sys.modules["__main__"]
    receiving = threading.Thread(target=_receive, args=(message["ttl_ms"],))
    # Before the import, in which lock.py may call a server.
    receiving.start()
    _import_lock()
    _answer(message, ok=True, name="lock.py", fencing=LEVEL >= FENCE_LEVEL, renews=LEVEL >= 4,
            cancels=True)
    receiving.join()


if __name__ == "__main__":
    main()
