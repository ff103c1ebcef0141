"""What the integration scripts share: commands, steps, an order and a race, and a test's outcome."""

import os
import shutil
import signal
import sys
import time
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "load"))

import shop  # noqa: E402
from processes import Process, until  # noqa: E402

COMMAND_TIMEOUT_S = 180
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ADMIN, BUYER = shop.demo_user("admin"), shop.demo_user("alice")

Result = namedtuple("Result", "returncode stdout")


class Failed(shop.ScriptError):
    """A step that did not hold."""


class Skipped(Exception):
    """The reason why the test cannot run here."""


def check(holds, what):
    if not holds:
        raise Failed(what)


# ---------------------------------------------------------------- commands


def run(command, timeout_s=COMMAND_TIMEOUT_S, expect=0, **options):
    """Runs a command in the repository; returns its exit code and what it printed. Raises unless it
    exits with `expect`; None allows every code."""
    with Process(command, **{"cwd": REPOSITORY, **options}) as process:
        code = process.wait(timeout_s)
        if expect not in (code, None):
            raise Failed(f"{' '.join(process.command)} exited with {code}, not {expect}:\n"
                         f"{process.last_lines()}")
        return Result(code, process.printed())


def succeeds(command, timeout_s=COMMAND_TIMEOUT_S):
    try:
        return run(command, timeout_s, expect=None).returncode == 0
    except (shop.ScriptError, OSError):
        return False


@contextmanager
def step(what):
    """Prints a step and its duration."""
    began = time.monotonic()
    print(f"== {what}", flush=True)
    yield
    print(f"   {time.monotonic() - began:.1f} s", flush=True)


# ---------------------------------------------------------------- the shop


def place_order(base):
    """Orders one unit of the first item of the catalogue; returns the order's path."""
    token = shop.sign_in(base, BUYER)
    _, _, items = shop.call(base, "GET", "/api/items", token)
    sku = next(item["sku"] for item in items["items"] if item["stock"] > 0)
    status, _, body = shop.call(base, "POST", "/api/orders", token, shop.order_of(sku),
                                shop.new_key())
    check(status == 201, f"an order got {status}: {body}")
    return f"/api/orders/{body['id']}"


def check_order(base, path):
    status, _, body = shop.call(base, "GET", path, shop.sign_in(base, BUYER))
    check(status == 200, f"the order {path} is lost: {status} {body}")


def race(base, lock, sold):
    """Runs a race of two buyers for one unit, which sells as many; returns its path."""
    request = {"lock": lock, "buyers": 2, "stock": 1}
    status, _, started = shop.call(base, "POST", "/api/race", "", request)
    check(status in (200, 202), f"the race under {lock} got {status}: {started}")
    path = f"/api/race/{started['id']}"
    until("the race is over", lambda: is_over(base, path), COMMAND_TIMEOUT_S)
    check_race(base, path, sold)
    return path


def is_over(base, path):
    return shop.call(base, "GET", path)[2].get("state") in ("done", "failed")


def check_race(base, path, sold):
    status, _, race = shop.call(base, "GET", path)
    check(race.get("sold") == sold, f"the race did not sell {sold}: {status} {race}")


# ---------------------------------------------------------------- the test


def end(number, _):
    # A second one would interrupt the removal of what the test made. Its commands inherit this.
    for other in END_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def run_test(name, test):
    """Runs a test and reports its outcome; returns the exit code."""
    for number in END_SIGNALS:
        signal.signal(number, end)
    began = time.monotonic()
    try:
        test()
    except Skipped as reason:
        if os.environ.get("CI") and shutil.which("docker"):
            print(f"{name}: FAILED, as CI is set: {reason}", file=sys.stderr)
            return 1
        print(f"{name}: SKIPPED: {reason}")
        return 0
    except (shop.ScriptError, OSError) as error:
        print(f"{name}: FAILED: {error}", file=sys.stderr)
        return 1
    print(f"{name}: passed in {time.monotonic() - began:.0f} s")
    return 0
