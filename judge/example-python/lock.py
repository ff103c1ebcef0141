import json
import sys
import threading
import time
import uuid

import redis

OUTPUT = threading.Lock()
RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"


def acquire(request):
    lease = str(uuid.uuid4())
    until = time.monotonic() + request["wait_ms"] / 1000
    while not client.set(request["key"], lease, nx=True, px=ttl_ms):
        if time.monotonic() > until:
            return {"ok": False, "reason": "timeout"}
        time.sleep(0.01)
    return {"ok": True, "lease": lease}


def release(request):
    released = client.eval(RELEASE, 1, request["key"], request["lease"])
    return {"ok": True} if released else {"ok": False, "reason": "lost"}


def serve(operation, request):
    try:
        answer = operation(request)
    except redis.RedisError as error:
        answer = {"ok": False, "reason": "error", "detail": str(error)}
    send(request, answer)


def send(request, answer):
    with OUTPUT:
        print(json.dumps({"id": request["id"], **answer}), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "init":
        client = redis.Redis.from_url(request["redis_url"])
        ttl_ms = request["ttl_ms"]
        send(request, {"ok": True, "name": "my lock", "fencing": False})
    else:
        operation = {"acquire": acquire, "release": release}[request["op"]]
        threading.Thread(target=serve, args=(operation, request), daemon=True).start()
