"""Shared by load/oversell-oha and load/oversell-k6: the same orders with the lock off and on.

Sends more orders than an item has units to all replicas, once without a lock and once with one,
each time with a new item of the lab, and reads from the item's audit what was sold. The claim is
shown if the first run oversold and the second did not. A tool provides one function that sends the
orders and counts the responses (`SendOrders`).

Exit codes: 0 shown · 1 not shown, or unexpected responses · 2 no result (no server, no tool, wrong
option, timeout) · 128 + n ended by signal n.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Callable, Optional

import common
import shop
from shop import ScriptError

# Time limit of a run.
MAX_RUN_S = 120


@dataclass(frozen=True)
class Load:
    """The orders of one run."""

    base_urls: list[str]
    token: str
    sku: str
    lock: Optional[str]  # None: the server's own
    orders: int
    connections: int
    work_ms: int

    def headers(self) -> dict[str, str]:
        return shop.order_headers(self.token, self.lock, self.work_ms)

    def body(self) -> str:
        return json.dumps(shop.order_of(self.sku))


@dataclass
class Responses:
    """The responses that a tool received."""

    accepted: int
    rejected: dict[str, int]  # by reason
    unexpected: dict[str, int]  # by description
    seconds: float
    p99_ms: float


SendOrders = Callable[[Load], Responses]


@dataclass
class Run(shop.ItemAudit):
    """A run: the item's audit, and the responses."""

    strategy: str
    orders: int
    accepted: int
    rejected: dict[str, int]
    unexpected: dict[str, int]
    undersold: int
    orders_per_s: float
    p99_ms: float


def main(name: str, tool: str, prepare: Callable[[], SendOrders]) -> int:
    options = read_options(name, tool)
    return common.run_script(
        name, lambda: run_both(name, tool, prepare(), shop.find_base_urls(options), options))


def run_both(name: str, tool: str, send_orders: SendOrders, base_urls: list[str],
             options) -> int:
    """Runs the load with the lock off and on; returns the exit code."""
    first = base_urls[0]
    if len(base_urls) > options.connections:
        raise ScriptError(f"{len(base_urls)} replicas need at least as many --connections")
    for base in base_urls:
        shop.check_ready(base)
    table = Table(options.json)
    with shop.signed_in(first, options.admin) as admin, \
            shop.signed_in(first, options.user) as buyer:
        locks = ("none", options.lock)
        strategies = []
        for lock in locks:
            sku = shop.create_lab_item(first, admin, len(base_urls))
            headers = shop.order_headers(buyer, lock, options.work_ms)
            strategies.append(shop.place_order_at_each(base_urls, headers, sku))
        table.begin(tool, base_urls, options)
        runs = []
        for lock, strategy in zip(locks, strategies):
            sku = shop.create_lab_item(first, admin, options.stock)
            load = Load(base_urls, buyer, sku, lock, options.orders, options.connections,
                        options.work_ms)
            responses = send_orders(load)
            runs.append(compare(load, strategy, responses, shop.audit(first, admin, sku)))
            table.add(runs[-1])
    off, on = runs
    shown, text = verdict(off, on)
    table.end(runs, text, first)
    if options.json:
        print(json.dumps({
            "script": name, "tool": tool, "base_urls": base_urls, "stock": options.stock,
            "connections": options.connections, "work_ms": options.work_ms,
            "off": asdict(off), "on": asdict(on), "claim_shown": shown, "verdict": text,
        }, indent=2))
    return 0 if shown else 1


def compare(load: Load, strategy: str, responses: Responses, audit: shop.ItemAudit) -> Run:
    """Compares the responses with the ledger."""
    unexpected = dict(responses.unexpected)
    answered = responses.accepted + sum(responses.rejected.values())
    missing = load.orders - answered - sum(unexpected.values())
    if missing > 0:
        unexpected["no response"] = missing
    if not unexpected and responses.accepted != audit.sold:
        unexpected[f"{responses.accepted} accepted, {audit.sold} in the ledger"] = \
            abs(responses.accepted - audit.sold)
    return Run(
        **vars(audit), strategy=strategy, orders=load.orders, accepted=responses.accepted,
        rejected=responses.rejected, unexpected=unexpected,
        undersold=max(0, min(audit.stock_opening, load.orders) - audit.sold),
        orders_per_s=round(answered / max(responses.seconds, 0.001), 1),
        p99_ms=round(responses.p99_ms, 1),
    )


def verdict(off: Run, on: Run) -> tuple[bool, str]:
    """Returns whether the claim is shown, and a sentence."""
    unexpected = sum(sum(run.unexpected.values()) for run in (off, on))
    if unexpected:
        return False, (f"Not shown: {unexpected} of {off.orders + on.orders} responses were "
                       "unexpected (listed above), so the figures prove nothing.")
    if on.strategy == "none":
        return False, ("Not shown: the server itself runs without a lock; choose a strategy, "
                       "e.g. --lock fenced.")
    if on.oversold > 0 or not on.ok:
        return False, (f"Not shown: with the lock on ({on.strategy}) the shop sold {on.sold} of "
                       f"{on.stock_opening} units, and the ledger is not sound (oversold "
                       f"{on.oversold}, drift {on.drift}, breaks {on.breaks}).")
    if on.sold == 0:
        return False, f"Not shown: with the lock on ({on.strategy}) the shop sold nothing."
    if off.oversold <= 0:
        return False, (f"Not shown: with the lock off the shop sold {off.sold} of "
                       f"{off.stock_opening} units and oversold nothing; use more --connections "
                       "or more --work-ms.")
    return True, (f"Shown: with the lock off the shop sold {off.sold} of {off.stock_opening} "
                  f"units, {off.oversold} that never existed; with it on ({on.strategy}) it sold "
                  f"{on.sold}, and the ledger is sound.")


class Table(common.Table):
    """The runs, for people."""

    def __init__(self, silent: bool) -> None:
        super().__init__([("lock", 14), ("sold", 7), ("in stock", 8), ("oversold", 8),
                          ("undersold", 9), ("forks", 7), ("rejected", 8), ("orders/s", 8),
                          ("p99", 7)], silent)

    def begin(self, tool: str, base_urls: list[str], options) -> None:
        self.print(f"{tool} against {', '.join(base_urls)}")
        self.print(f"{options.stock} units, {options.orders} orders of one unit over "
                   f"{options.connections} connections, {options.work_ms} ms between read and "
                   "write")
        if len(base_urls) == 1:
            self.print("There is one replica: a lock inside one process looks safe here.")
        self.header()

    def add(self, run: Run) -> None:
        self.row([run.strategy, run.sold, run.stock, run.oversold, run.undersold, run.forks,
                  sum(run.rejected.values()), f"{run.orders_per_s:.0f}", f"{run.p99_ms:.0f} ms"])

    def end(self, runs: list[Run], text: str, base: str) -> None:
        self.print("")
        for run in runs:
            if run.rejected:
                self.print(f"{run.strategy} rejected: {common.counts_of(run.rejected)}")
            if run.unexpected:
                self.print(f"{run.strategy} unexpected: {common.counts_of(run.unexpected)}")
        self.print(text)
        self.print("")
        for run in runs:
            self.print(f"the ledger under {run.strategy}: {base}/items/{run.sku}")


def read_options(name: str, tool: str):
    between = common.between
    parser = common.parser_of(
        name, f"Shows with {tool} that the shop oversells without its lock and not with it.")
    add = parser.add_argument
    add("--lock", metavar="NAME", help="strategy of the second run [default: the server's own]")
    add("--stock", type=between(1, 100_000), default=100, help="units in stock [%(default)s]")
    add("--orders", type=between(2, 200_000), default=400,
        help="orders of each run, more than the units [%(default)s]")
    add("--connections", type=between(1, 512), default=32, help="connections [%(default)s]")
    add("--work-ms", type=between(0, 1_000), default=5,
        help="extra time between read and write, in both runs [%(default)s]")
    options = common.parse(parser)
    if options.orders <= options.stock:
        parser.error("--orders must be more than --stock")
    if options.connections > options.orders:
        parser.error("--connections must not be more than --orders")
    return options
