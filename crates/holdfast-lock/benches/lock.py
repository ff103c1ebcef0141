"""One process of the lock bench with redis-py's Lock: SOCKET CLIENTS FIRST SECONDS."""

import sys
import threading
import time

import redis

socket, clients, first, seconds = sys.argv[1], *map(int, sys.argv[2:5])


def now_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


end = now_us() + seconds * 1_000_000
holds = []


def client(number):
    connection = redis.Redis(unix_socket_path=socket)
    lock = connection.lock("bench:redis-py", timeout=10)
    while now_us() < end:
        asked = now_us()
        lock.acquire()
        held = now_us()
        time.sleep(0.002)
        released = now_us()
        lock.release()
        holds.append((number, asked, held, released))
        time.sleep(0.02)


threads = [threading.Thread(target=client, args=(first + n,)) for n in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for hold in holds:
    print(*hold)
