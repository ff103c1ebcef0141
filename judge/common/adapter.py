"""The protocol of `holdfast judge` (docs/JUDGE.md) for locks in Python.

An adapter passes `serve` a class:

    class Locks:
        name, fencing, renews = "library 1.0", False, False
        def __init__(self, init): ...           # the request `init`: redis_url, ttl_ms, ...
        def acquire(self, key, wait): ...       # a lease, or None after `wait` seconds
        def release(self, key, lease): ...      # False if the lock was lost
        def fence(self, lease): ...             # with `fencing`

A thread that acquires a lease also releases it: libraries bind locks to threads, and clients. It then
serves another acquisition, so that there are as many threads as clients. A lock that is told that it
was lost calls `lost(lease)`. An exception is reported as "error": a backend that is away is not a
lock that is busy. The judge ends an adapter by SIGKILL, and with it all of its child processes.
"""

import collections
import itertools
import json
import os
import queue
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

_output = threading.Lock()
_threads = ThreadPoolExecutor(max_workers=256)  # the judge has fewer clients
_leases = {}  # by the lease's name: the queue of its thread, for the request to release it
_held = {}  # the names of what `acquire` has returned, by its identity
# What was lost before its grant, or after its release: kept, so that its identity is no other's.
_not_held = collections.deque(maxlen=256)
_names = itertools.count(1)


def _write(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _answer(request, **fields):
    with _output:
        _write({"id": request["id"], **fields})


def lost(lease):
    """Tells the client of `lease`, as `acquire` returned it, to stop before its write.

    Each lease is an object of its own. One that is lost before its grant was answered counts, too.
    """
    with _output:
        if id(lease) in _held:
            _write({"lost": _held[id(lease)]})
        else:
            _not_held.append(lease)


def _error(request, error):
    detail = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    _answer(request, ok=False, reason="error", detail=detail)


def _grant(request, name, lease, fields):
    """Answers, and says at once what was lost already: the judge knows no lease before its grant."""
    with _output:
        _held[id(lease)] = name
        _write({"id": request["id"], "ok": True, "lease": name, **fields})
        if any(other is lease for other in _not_held):
            _write({"lost": name})


def _serve_lease(locks, request):
    """Acquires, answers, and serves the request to release this lease."""
    try:
        _take_turn(locks, request)
    except BaseException:
        traceback.print_exc()  # the judge quotes it


def _take_turn(locks, request):
    key = request["key"]
    try:
        lease = locks.acquire(key, request["wait_ms"] / 1000)
        fields = {"fence": locks.fence(lease)} if lease is not None and locks.fencing else {}
    except Exception as error:
        return _error(request, error)
    if lease is None:
        return _answer(request, ok=False, reason="timeout" if request["wait_ms"] else "busy")
    name, releases = f"{os.getpid()}-{next(_names)}", queue.SimpleQueue()
    _leases[name] = releases
    _grant(request, name, lease, fields)
    request = releases.get()
    try:
        released = locks.release(key, lease)
        _answer(request, **({"ok": True} if released else {"ok": False, "reason": "lost"}))
    except Exception as error:
        _error(request, error)
    finally:
        _held.pop(id(lease), None)


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
            _threads.submit(_serve_lease, locks, request)
        else:
            releases = _leases.pop(request["lease"], None)
            if releases is None:
                _answer(request, ok=False, reason="error", detail="unknown lease")
            else:
                releases.put(request)
    os._exit(0)  # also threads that wait for a lock
