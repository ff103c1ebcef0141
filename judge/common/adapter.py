"""The protocol of `holdfast judge` (docs/JUDGE.md) for locks in Python.

An adapter passes `serve` a class:

    class Locks:
        name, fencing, renews = "library 1.0", False, False
        def __init__(self, init): ...           # the request `init`: redis_url, ttl_ms, ...
        def acquire(self, key, wait): ...       # a lease, or None after `wait` seconds
        def release(self, key, lease): ...      # False if the lock was lost
        def fence(self, lease): ...             # with `fencing`

Each acquisition has a thread of its own, which also releases: libraries bind locks to threads. An
exception is reported as "error": a backend that is away is not a lock that is busy. The judge ends
an adapter by SIGKILL, and with it all of its child processes.
"""

import itertools
import json
import os
import queue
import sys
import threading
import traceback

_output = threading.Lock()
_leases = {}  # by the lease's name: the queue of its thread, for the request to release it
_names = itertools.count(1)


def _answer(request, **fields):
    with _output:
        sys.stdout.write(json.dumps({"id": request["id"], **fields}) + "\n")
        sys.stdout.flush()


def _error(request, error):
    detail = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    _answer(request, ok=False, reason="error", detail=detail)


def _serve_lease(locks, request):
    """Acquires, answers, and serves the request to release this lease."""
    key = request["key"]
    try:
        lease = locks.acquire(key, request["wait_ms"] / 1000)
    except Exception as error:
        return _error(request, error)
    if lease is None:
        return _answer(request, ok=False, reason="timeout" if request["wait_ms"] else "busy")
    name, releases = f"{os.getpid()}-{next(_names)}", queue.SimpleQueue()
    _leases[name] = releases
    fence = {"fence": locks.fence(lease)} if locks.fencing else {}
    _answer(request, ok=True, lease=name, **fence)
    request = releases.get()
    try:
        released = locks.release(key, lease)
        _answer(request, **({"ok": True} if released else {"ok": False, "reason": "lost"}))
    except Exception as error:
        _error(request, error)


def serve(kind):
    """Serves the requests of the judge until the end of its input."""
    locks = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "init":
            try:
                locks = kind(request)
            except Exception:
                traceback.print_exc()
                sys.exit("the adapter could not open its lock")
            _answer(request, ok=True, name=kind.name, fencing=kind.fencing, renews=kind.renews)
        elif request["op"] == "acquire":
            threading.Thread(target=_serve_lease, args=(locks, request), daemon=True).start()
        else:
            releases = _leases.pop(request["lease"], None)
            if releases is None:
                _answer(request, ok=False, reason="error", detail="unknown lease")
            else:
                releases.put(request)
    os._exit(0)  # also threads that wait for a lock
