"""The story that load/oversell-oha and load/oversell-k6 both tell.

A throw-away item of the lab is put on the shelf, more orders than it has units are thrown at every
replica, once with the lock off and once with it on, and the item's own audit says what each run
sold. The claim is shown only if *off oversold and on did not*. A tool supplies one function that
throws the orders and counts the answers (see `Throw`); everything else is here. Python's standard
library only.

Exit codes: 0 shown · 1 not shown, or answers nobody expected · 2 the story could not be told (no
server, no tool, wrong option, out of time) · 128 + n ended by signal n.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from typing import Callable, Optional

from common import add_shop, between, count, listed, parsed, told
from shop import (Trouble, audit, check_ready, find_base_urls, order_body, order_headers, place_one,
                  put_on_the_shelf, signed_in)

# What to do when a run takes too long.
LESS = "fewer --orders or more --max-seconds"


@dataclass(frozen=True)
class Load:
    """One run: what a tool is to throw."""

    base_urls: list[str]
    token: str
    sku: str
    lock: Optional[str]  # None: no header, so the server's own
    orders: int
    connections: int
    work_ms: int
    max_seconds: int

    def headers(self) -> dict[str, str]:
        """What every order of this run carries, apart from its key."""
        return order_headers(self.token, self.lock, self.work_ms)

    def body(self) -> str:
        """Every order asks for one unit."""
        return order_body(self.sku)


@dataclass
class Answers:
    """What a tool saw of a run."""

    accepted: int
    refused: dict[str, int]  # why -> how many; a refusal is an answer, not a failure
    unexpected: dict[str, int]  # what -> how many
    seconds: float
    p99_ms: float

    def answered(self) -> int:
        """Orders that were accepted or refused."""
        return self.accepted + sum(self.refused.values())


Throw = Callable[[Load], Answers]


@dataclass
class Run:
    """A run and what the ledger says about it; the names are those of the contract."""

    strategy: str
    sku: str
    stock_opening: int
    orders: int
    accepted: int
    refused: dict[str, int]
    unexpected: dict[str, int]
    sold: int
    stock: int
    oversold: int
    undersold: int
    drift: int
    breaks: int
    forks: int
    orders_per_s: float
    p99_ms: float
    ok: bool


# ------------------------------------------------------------------ telling it


def tell(name: str, tool: str, prepare: Callable[[], Throw]) -> int:
    """Tells the story with one tool and returns the exit code."""
    options = read_options(name, tool)

    def story() -> int:
        throw = prepare()
        return run_both(name, tool, throw, find_base_urls(options), options)

    return told(name, story)


def run_both(name: str, tool: str, throw: Throw, base_urls: list[str], options) -> int:
    """Lock off, lock on, verdict."""
    if len(base_urls) > options.connections:
        raise Trouble(f"{len(base_urls)} replicas need at least as many --connections")
    for base in base_urls:
        check_ready(base)
    table = Table(silent=options.json)
    with signed_in(base_urls[0], options.admin) as admin, \
            signed_in(base_urls[0], options.user) as buyer:
        def load(lock: Optional[str], stock: int) -> Load:
            sku = put_on_the_shelf(base_urls[0], admin, stock)
            return Load(base_urls, buyer, sku, lock, options.orders, options.connections,
                        options.work_ms, options.max_seconds)

        locks = ("none", options.lock)
        names = [try_out(load(lock, len(base_urls))) for lock in locks]
        table.opening(tool, base_urls, options)
        runs = []
        for lock, strategy in zip(locks, names):
            run = load(lock, options.stock)
            answers = throw(run)
            runs.append(judged(run, strategy, answers, audit(base_urls[0], admin, run.sku)))
            table.row(runs[-1])
    off, on = runs
    shown, text = verdict(off, on)
    table.closing(runs, text)
    table.evidence(base_urls[0], runs)
    if options.json:
        print(json.dumps({
            "story": name, "tool": tool, "base_urls": base_urls, "stock": options.stock,
            "connections": options.connections, "work_ms": options.work_ms,
            "off": asdict(off), "on": asdict(on), "claim_shown": shown, "verdict": text,
        }, indent=2))
    return 0 if shown else 1


def try_out(load: Load) -> str:
    """One order at every replica, so that what is refused as a whole is told in the server's own
    words before the runs; gives the name of the strategy that took them."""
    names = [place_one(base, load.token, load.headers(), load.body()) for base in load.base_urls]
    return " / ".join(dict.fromkeys(names))


def judged(load: Load, strategy: str, answers: Answers, found: dict) -> Run:
    """Holds what the tool saw against what the ledger says."""
    unexpected = dict(answers.unexpected)
    silent = load.orders - answers.answered() - sum(unexpected.values())
    if silent > 0:
        unexpected["not answered in time"] = silent
    if not unexpected and answers.accepted != found["sold"]:
        unexpected[f"{answers.accepted} accepted, {found['sold']} in the ledger"] = \
            abs(answers.accepted - found["sold"])
    opening = found["opening"] + found["restocked"]
    return Run(
        strategy=strategy, sku=load.sku, stock_opening=opening, orders=load.orders,
        accepted=answers.accepted, refused=answers.refused, unexpected=unexpected,
        sold=found["sold"], stock=found["stock"], oversold=found["oversold"],
        undersold=max(0, min(opening, load.orders) - found["sold"]), drift=found["drift"],
        breaks=count(found["breaks"]), forks=count(found["forks"]),
        orders_per_s=round(answers.answered() / max(answers.seconds, 0.001), 1),
        p99_ms=round(answers.p99_ms, 1), ok=found["ok"],
    )


def verdict(off: Run, on: Run) -> tuple[bool, str]:
    """Whether off oversold and on did not, and that in a sentence."""
    strange = sum(sum(run.unexpected.values()) for run in (off, on))
    if strange:
        return False, (f"Not shown: {strange} of {off.orders + on.orders} orders did not get an "
                       "answer this story knows (listed above), so the figures prove nothing.")
    if on.strategy == "none":
        return False, ("Not shown: the server itself runs without a lock, so both runs did; name "
                       "one that holds, e.g. --lock fenced.")
    if on.oversold > 0 or not on.ok:
        return False, (f"Not shown: with the lock on ({on.strategy}) the shop sold {on.sold} of "
                       f"{on.stock_opening} units and its ledger is not sound (oversold "
                       f"{on.oversold}, drift {on.drift}, breaks {on.breaks}): "
                       f"{on.strategy} does not hold here.")
    if on.sold == 0:
        return False, (f"Not shown: with the lock on ({on.strategy}) the shop sold nothing at all, "
                       "and who sells nothing oversells nothing.")
    if off.oversold <= 0:
        return False, (f"Not shown: with the lock off the shop sold {off.sold} of "
                       f"{off.stock_opening} units and oversold nothing; try more --connections "
                       "or more --work-ms.")
    return True, (f"Shown: with the lock off the shop sold {off.sold} of {off.stock_opening} "
                  f"units, {off.oversold} that never existed; with it on ({on.strategy}) it sold "
                  f"{on.sold} and the ledger is sound.")


class Table:
    """The figures for a person; a row as soon as its run has ended."""

    COLUMNS = ("lock", "sold", "on the shelf", "oversold", "undersold", "forks", "refused",
               "orders/s", "p99")

    def __init__(self, silent: bool) -> None:
        self.silent = silent

    def opening(self, tool: str, base_urls: list[str], options) -> None:
        self.say(f"{tool} against {', '.join(base_urls)}")
        self.say(f"{options.stock} units, {options.orders} orders of one unit over "
                 f"{options.connections} connections, {options.work_ms} ms between read and write")
        if len(base_urls) == 1:
            self.say("One replica only: a lock inside one process would look safe here.")
        self.say("")
        self.say(self.line(self.COLUMNS))

    def row(self, run: Run) -> None:
        self.say(self.line((run.strategy, run.sold, run.stock, run.oversold, run.undersold,
                            run.forks, sum(run.refused.values()), f"{run.orders_per_s:.0f}",
                            f"{run.p99_ms:.0f} ms")))

    def closing(self, runs: list[Run], text: str) -> None:
        self.say("")
        for run in runs:
            if run.refused:
                self.say(f"{run.strategy} refused: {listed(run.refused)}")
        for run in runs:
            if run.unexpected:
                self.say(f"{run.strategy} unexpected: {listed(run.unexpected)}")
        self.say(text)

    def evidence(self, base: str, runs: list[Run]) -> None:
        self.say("")
        for run in runs:
            self.say(f"the ledger under {run.strategy}: {base}/items/{run.sku}")

    def line(self, cells) -> str:
        first, *rest = [str(cell) for cell in cells]
        widths = [max(len(name), 7) for name in self.COLUMNS[1:]]
        return f"{first:<14}" + "".join(f"  {c:>{w}}" for c, w in zip(rest, widths))

    def say(self, text: str) -> None:
        if not self.silent:
            print(text, flush=True)


# -------------------------------------------------------------------- options


def read_options(name: str, tool: str) -> argparse.Namespace:
    """The command line, with its defaults from the environment."""
    parser = argparse.ArgumentParser(
        prog=f"load/{name}",
        description=f"Shows with {tool} that the shop oversells without its lock and not with it.",
        epilog="Exit code 0: shown. 1: not shown. 2: the story could not be told. HOLDFAST_USER and "
               "HOLDFAST_PASSWORD (alice) buy, HOLDFAST_ADMIN and HOLDFAST_ADMIN_PASSWORD (admin) "
               "run the lab.")
    add = parser.add_argument
    add("--lock", metavar="NAME", default=os.environ.get("LOCK") or None,
        help="the strategy of the second run [env: LOCK; default: the server's own]")
    add("--stock", type=between(1, 100_000), default=100, help="units on the shelf [%(default)s]")
    add("--orders", type=between(2, 200_000), default=400,
        help="orders of each run, more than the units [%(default)s]")
    add("--connections", type=between(1, 512), default=32, help="orders at once [%(default)s]")
    add("--work-ms", type=between(0, 1_000), default=5,
        help="extra time between read and write, in both runs [%(default)s]")
    add("--max-seconds", type=between(1, 600), default=60,
        help="a run is ended after this long [%(default)s]")
    add_shop(parser)
    options = parsed(parser)
    if options.orders <= options.stock:
        parser.error("--orders must be more than --stock, or there is nothing to oversell")
    if options.connections > options.orders:
        parser.error("--connections must not be more than --orders")
    return options
