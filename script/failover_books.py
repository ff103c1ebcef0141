"""Orders under faults, and exact books of them: used by script/test-failover."""

import http.client
import re
import threading
import time
from collections import Counter

from ha_cluster import read_json
from integration import ADMIN, BUYER, check
import shop
from processes import until

CLIENTS = 9
ITEMS = 6
STOCK = 1_000_000
# Between two orders of a client: two cores also run what is tested.
PAUSE_S = 0.03
RETRY_S = 0.1
# Until an order is accepted, with all repetitions.
MAX_ORDER_S = 150
WATCH_S = 0.25
LOCK_FAMILY = "select family, strategy, redis_mark from lock_family"
# Of columns: those below a stored number, and those with a number that is stored twice.
WRONG_SEQUENCES = """
    select sequence.relname
    from pg_class as sequence
    join pg_depend on objid = sequence.oid and classid = 'pg_class'::regclass and deptype = 'i'
    join pg_attribute on attrelid = refobjid and attnum = refobjsubid
    cross join lateral query_to_xml(
        format('select coalesce(max(%1$I), 0) as newest, count(*) - count(distinct %1$I) as twice '
               'from %2$s', attname, refobjid::regclass), false, true, '') as stored
    where sequence.relkind = 'S'
      and (coalesce(pg_sequence_last_value(sequence.oid), 0)
             < (xpath('//newest/text()', stored))[1]::text::bigint
           or (xpath('//twice/text()', stored))[1]::text <> '0')
"""


class Threads:
    """Threads that run during the block, and end when `ended` is set."""

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()


class Orders(Threads):
    """Orders of several clients during the block. A client repeats an order with its key, at one
    replica after the other, until it is accepted, and writes down what it was told."""

    def __init__(self, cluster, urls=None):
        self.cluster = cluster
        self.urls = urls or [node.url for node in cluster.nodes]
        self.ended, self.lock = threading.Event(), threading.Lock()
        self.accepted = {}  # by key: the order's id, when it was accepted
        self.answers, self.failures = Counter(), []
        self.longest_response_s = 0.0

    def __enter__(self):
        base = self.urls[0]
        self.admin, self.buyer = shop.sign_in(base, ADMIN), shop.sign_in(base, BUYER)
        self.lock_family = self.stored(LOCK_FAMILY)
        self.skus = [shop.create_lab_item(base, self.admin, STOCK) for _ in range(ITEMS)]
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self.place_orders, args=(number,))
                        for number in range(CLIENTS)]
        return super().__enter__()

    def place_orders(self, number):
        connections = [shop.Connection(url, self.buyer) for url in self.urls]
        place = number % len(connections)
        try:
            while not self.ended.is_set():
                place = self.place_order(connections, place, self.skus[number % ITEMS])
                self.ended.wait(PAUSE_S)
        except Exception as error:
            self.failures.append(repr(error))
        finally:
            for connection in connections:
                connection.close()

    def place_order(self, connections, place, sku):
        """Returns the replica that accepted it."""
        key, began = shop.new_key(), time.monotonic()
        while True:
            sent = time.monotonic()
            try:
                status, _, body = connections[place].send("POST", "/api/orders", shop.order_of(sku),
                                                          key)
            except (OSError, http.client.HTTPException) as error:
                status, body = type(error).__name__, {}
            now = time.monotonic()
            problem = str(body.get("type", "")).rpartition("/")[2] if isinstance(body, dict) else ""
            unknown = " unknown" if problem and body.get("outcome") == "unknown" else ""
            with self.lock:
                self.answers[f"{status} {problem}{unknown}".strip()] += 1
                self.longest_response_s = max(self.longest_response_s, now - sent)
                if status == 201:
                    self.accepted[key["Idempotency-Key"]] = (body["id"], now)
                    return place
            in_flight = status == 409 and problem == "idempotency-key-in-flight"
            check(status in (502, 503, 504) or in_flight or isinstance(status, str),
                  f"an order got {status}: {body}")
            check(now - began <= MAX_ORDER_S,
                  f"an order was not accepted within {MAX_ORDER_S} s; its last status: {status}")
            time.sleep(RETRY_S)
            place = (place + 1) % len(connections)

    def wait_for(self, count, timeout_s=120):
        """Waits until this number of further orders is accepted."""
        target = len(self.accepted) + count
        until(f"{count} orders", lambda: self.failures or len(self.accepted) >= target, timeout_s)

    def accepted_between(self, begin, end):
        return sum(1 for _, at in list(self.accepted.values()) if begin <= at < end)

    def longest_gap(self):
        times = sorted([self.began, *(at for _, at in self.accepted.values())])
        return max((after - before for before, after in zip(times, times[1:])), default=0.0)

    def stored(self, statement):
        """What the primary responds to a statement."""
        port = self.cluster.primary().ports["postgres"]
        code, output = self.cluster.psql(port, "holdfast", "holdfast", statement, 60)
        check(code == 0, f"psql exited with {code}: {output}")
        return output.strip()

    # ---- afterwards

    def check_each_replica(self):
        """Each replica sells again, to a session from before the fault, and under the same lock."""
        for node in self.cluster.nodes:
            connection = shop.Connection(node.url, self.buyer)
            self.place_order([connection], 0, self.skus[0])
            connection.close()
        family = self.stored(LOCK_FAMILY)
        check(family == self.lock_family, f"the lock was {self.lock_family}, and is {family}")

    def compare(self):
        """Compares the books with the database; returns lost and doubled orders."""
        names = ", ".join(f"'{sku}'" for sku in self.skus)
        output = self.stored("select token, id from orders join order_lines on order_id = id "
                             f"where sku in ({names})")
        stored = {}
        for line in output.split():
            key, _, order = line.partition("|")
            stored.setdefault(key, []).append(order)

        lost = [key for key, (order, _) in self.accepted.items() if order not in stored.get(key, [])]
        doubled = [key for key, orders in stored.items()
                   if len(orders) > 1 or key not in self.accepted]
        return lost, doubled

    def check_repetitions(self, count=30):
        """The latest orders, sent again: each gets its first answer."""
        latest = sorted(self.accepted.items(), key=lambda entry: entry[1][1])[-count:]
        connection = shop.Connection(self.urls[0], self.buyer)
        for key, (order, _) in latest:
            found = self.cluster.psql(self.cluster.primary().ports["postgres"], "holdfast", "holdfast",
                                      f"select sku from order_lines where order_id = '{order}'")[1]
            status, _, body = connection.send("POST", "/api/orders", shop.order_of(found.strip()),
                                              {"Idempotency-Key": key})
            check(status == 201 and body["id"] == order,
                  f"the order {order}, sent again, got {status}: {body}")
        connection.close()

    def check_expiry(self):
        """Unpaid orders are cancelled on time again, whichever replica had the lease of this."""
        def count(condition):
            return self.cluster.psql(self.cluster.primary().ports["postgres"], "holdfast", "holdfast",
                                     f"select count(*) from orders where {condition}")[1].strip()

        overdue = "status = 'pending' and expires_at < now() - interval '2 s'"
        until("no order is overdue", lambda: count(overdue) == "0", 60)
        check(count("status = 'cancelled'") != "0", "no unpaid order was cancelled")

    def check_sequences(self):
        """No number was given twice, and none that is stored will be."""
        wrong = self.stored(WRONG_SEQUENCES)
        check(not wrong, f"these sequences went back: {wrong}")

    def check_ledgers(self):
        for sku in self.skus:
            audit = shop.audit(self.urls[0], self.admin, sku)
            check(audit.ok, f"the ledger is not sound: {audit}")


class Watch(Threads):
    """What each replica says of itself during the block: /readyz, and the shop's page."""

    def __init__(self, urls):
        self.urls, self.seen, self.pages = urls, Counter(), Counter()
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.look, args=(url,)) for url in urls]

    def look(self, url):
        while not self.ended.wait(WATCH_S):
            found = read_json(f"{url}/readyz", 4)
            state = f"{found[0]} {found[1].get('postgres', '')}".strip() if found else "no response"
            self.seen[state] += 1
            self.pages[self.page(url)] += 1

    @staticmethod
    def page(url):
        try:
            connection = shop.Connection(url)
            connection.http.timeout = 10
            connection.http.request("GET", "/shop", headers={"Accept": "text/html"})
            response = connection.http.getresponse()
            text = response.read().decode(errors="replace")
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        if response.status == 200:
            return "200"
        title = re.search("<h1[^>]*>(.*?)</h1>", text, re.DOTALL)
        return f"{response.status} {title.group(1).strip() if title else ''}".strip()
