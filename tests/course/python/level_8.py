"""A fair lock with five commands a grant.

The lock is the key with the holder's token and a lease. Beside it lies a list with one element, the
baton: who takes it may set the key. Redis serves those who wait in BLPOP in their order, so nobody
asks twice. A baton can be lost, with its holder or with the data: a guard of each process lays down
a new one when there is neither a baton nor a holder.
"""

import threading
import uuid

from holdfast_course import Cancelled, postgres, redis, sleep

# Who releases leaves the key to the next holder, for a moment: a baton that is lost on the way is
# replaced soon, and a second release of the same token changes nothing.
RELEASE = """
local holder = redis.call('set', KEYS[1], 'passing', 'px', ARGV[2] / 4, 'get')
if holder == ARGV[1] then return redis.call('rpush', KEYS[2], 'baton') end
if holder then redis.call('set', KEYS[1], holder, 'px', ARGV[2]) else redis.call('del', KEYS[1]) end
"""
RENEW = ("return redis.call('get', KEYS[1]) == ARGV[1] "
         "and redis.call('pexpire', KEYS[1], ARGV[2])")
# With a key already: until the next holder has set its own, another guard would lay down a second one.
REPLACE = """
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return end
redis.call('set', KEYS[1], 'passing', 'px', ARGV[1] / 4)
redis.call('rpush', KEYS[2], 'baton')
"""
renewals = {}
lease_ms = {}
guarded = set()
guards = threading.Lock()


def acquire(key, wait_s, ttl_ms):
    ensure_guard(key, ttl_ms)
    if redis("BLPOP", baton(key), wait_s) is None:
        return None
    token = str(uuid.uuid4())
    try:
        redis("SET", key, token, "PX", ttl_ms)
        start_renewal(key, token, ttl_ms)
        return token, new_fence()
    except Cancelled:
        # The baton is ours: it has to go on. SET may not have been sent.
        stop_renewal(token)
        redis("SET", key, token, "PX", ttl_ms)
        give_back(key, token)
        raise
    except BaseException:
        stop_renewal(token)  # the lease ends by itself
        raise


def release(key, token):
    stop_renewal(token)
    try:
        return give_back(key, token)
    except Cancelled:
        give_back(key, token)
        raise


def give_back(key, token):
    return redis("EVAL", RELEASE, 2, key, baton(key), token, lease_ms[key]) is not None


def baton(key):
    return f"{key}:baton"


def new_fence():
    """A number above all earlier ones, from a store that does not forget. Who is overtaken on the way
    has a higher fence than the next holder, who is then refused: nothing is lost."""
    return int(postgres("select nextval('fences')"))


def start_renewal(key, token, ttl_ms):
    renewals[token] = threading.Event()
    arguments = (key, token, ttl_ms, renewals[token])
    threading.Thread(target=renew, args=arguments, daemon=True).start()


def stop_renewal(token):
    if token in renewals:
        renewals.pop(token).set()


def renew(key, token, ttl_ms, ended):
    while not ended.wait(ttl_ms / 3000):
        try:
            if redis("EVAL", RENEW, 1, key, token, ttl_ms) != 1:
                return
        except ConnectionError:
            pass  # until the lease ends, the next one may succeed


def ensure_guard(key, ttl_ms):
    with guards:
        if key not in guarded:
            guarded.add(key)
            lease_ms[key] = ttl_ms
            threading.Thread(target=guard, args=(key, ttl_ms), daemon=True).start()


def guard(key, ttl_ms):
    while True:
        try:
            if redis("EXISTS", key, baton(key)) == 0:
                redis("EVAL", REPLACE, 2, key, baton(key), ttl_ms)
        except (ConnectionError, RuntimeError):
            pass  # a server that is away comes back
        sleep(ttl_ms / 4000)
