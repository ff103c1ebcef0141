"""Shared by the load scripts: exit codes, options, load tools, tables.

No tool outlives the script that started it, or runs longer than its time limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Callable, Optional

from processes import Process
from shop import REPOSITORY, REQUEST_TIMEOUT_S, Credentials, ScriptError

LOAD = REPOSITORY / "load"
TOOLS = LOAD / ".tools"

# Time for a tool to start, to summarize and to stop.
TOOL_GRACE_S = 10


def run_script(name: str, script: Callable[[], int]) -> int:
    """Runs a script and returns its exit code; 2 if it cannot run."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        return script()
    except ScriptError as error:
        print(f"load/{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nload/{name}: interrupted", file=sys.stderr)
        return 130


# ---------------------------------------------------------------- options


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options of every script that uses a running shop."""
    parser = argparse.ArgumentParser(
        prog=f"load/{name}", description=description,
        epilog="Exit code 0: shown. 1: not shown. 2: no result. HOLDFAST_USER and "
               "HOLDFAST_PASSWORD (alice) place orders, HOLDFAST_ADMIN and "
               "HOLDFAST_ADMIN_PASSWORD (admin) create the item and read its audit.")
    add = parser.add_argument
    add("--base-urls", metavar="URL,URL", default=os.environ.get("HOLDFAST_REPLICAS") or None,
        help="the replicas [env: HOLDFAST_REPLICAS; default: those of the running `holdfast up`]")
    add("--data", metavar="FOLDER",
        default=os.environ.get("HOLDFAST_DATA") or str(REPOSITORY / ".holdfast"),
        help="data folder of the running `holdfast up` [env: HOLDFAST_DATA; default: .holdfast]")
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--yes-remote", action="store_true",
        help="allow another machine; ask its owner first")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the command line, and reads the users from the environment."""
    options = parser.parse_args()
    if options.lock and not options.lock.replace("-", "").isalnum():
        parser.error(f"--lock {options.lock!r} is not the name of a strategy")
    env = os.environ.get
    options.user = Credentials(env("HOLDFAST_USER", "alice"), env("HOLDFAST_PASSWORD", "alice"),
                               "HOLDFAST_USER and HOLDFAST_PASSWORD")
    options.admin = Credentials(env("HOLDFAST_ADMIN", "admin"),
                                env("HOLDFAST_ADMIN_PASSWORD", "admin"),
                                "HOLDFAST_ADMIN and HOLDFAST_ADMIN_PASSWORD")
    return options


def between(least: float, most: float, kind: type = int) -> Callable[[str], float]:
    """A number within bounds, for argparse."""
    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not between {least} and {most}")
        return value
    return number


# ---------------------------------------------------------------- load tools


def find_oha() -> str:
    return find_tool("oha", TOOLS / "bin" / "oha")


def find_k6() -> str:
    return find_tool("k6", TOOLS / "k6" / "bin" / "k6")


def find_tool(name: str, installed: Path) -> str:
    """Returns the tool of load/setup, otherwise the one on the PATH."""
    found = str(installed) if os.access(installed, os.X_OK) else shutil.which(name)
    if not found:
        raise ScriptError(f"{name} is missing: run load/setup {name}")
    return found


def oha_orders(oha: str, base: str, headers: dict[str, str], body: str, orders: int,
               connections: int) -> list[str]:
    """The command of an oha that sends orders to one replica, each with a key of 128 random bits.
    oha escapes the dots of a URL itself."""
    url = base.replace("[", r"\[").replace("]", r"\]") + "/api/orders[?]token=[0-9a-f]{32}"
    command = [oha, "--no-tui", "--output-format", "json", "--redirect", "0", "-m", "POST",
               "-n", str(orders), "-c", str(connections), "-t", f"{REQUEST_TIMEOUT_S}s",
               "-T", "application/json", "-d", body]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    return [*command, "--rand-regex-url", url]


def k6_variables(base_urls: list[str], headers: dict[str, str], body: str, warm_up_s: int = 0,
                 seconds: int = 600, pause_after_503_s: int = 0) -> dict[str, str]:
    """The environment of orders.js."""
    return {"BASE_URLS": ",".join(base_urls), "HEADERS": json.dumps(headers), "BODY": body,
            "RUN": uuid.uuid4().hex, "WARM_UP_S": str(warm_up_s), "SECONDS": str(seconds),
            "PAUSE_AFTER_503_S": str(pause_after_503_s),
            "REQUEST_TIMEOUT_S": str(REQUEST_TIMEOUT_S)}


def run_k6(k6: str, scenario: dict, variables: dict[str, str],
           max_s: float) -> tuple[dict, dict[str, int]]:
    """Runs orders.js; returns its summary, and the number of each unexpected response. The
    variables contain the session token, so they are not on the command line."""
    with tempfile.TemporaryDirectory(prefix="holdfast-k6-") as folder:
        summary, errors = Path(folder, "summary.json"), Path(folder, "errors")
        errors.touch()
        # Without reports to k6's makers, and without a port of its own.
        command = [k6, "run", "--no-usage-report", "--address", "", "--quiet", "--no-color",
                   "--log-format", "raw", "--console-output", str(errors),
                   str(LOAD / "orders.js")]
        env = {name: value for name, value in os.environ.items() if not name.startswith("K6_")}
        # It shares the cores with the shop: more memory for less garbage collection.
        env.setdefault("GOGC", "400")
        env.update(variables, SCENARIO=json.dumps(scenario), SUMMARY=str(summary))
        run_tools([command], max_s, env)
        found = Counter(line for line in errors.read_text().splitlines() if line)
        return json.loads(summary.read_text()), dict(found)


def run_tools(commands: list[list[str]], max_s: float, env: Optional[dict] = None) -> list[str]:
    """Runs commands at the same time, at most `max_s` and the grace period; returns their
    outputs."""
    deadline = time.monotonic() + max_s + TOOL_GRACE_S
    with ExitStack() as block:
        tools = []
        for command in commands:
            errors = block.enter_context(tempfile.TemporaryFile("w+"))
            tool = Process(command, end_timeout_s=3, stderr=errors, env=env)
            tools.append((block.enter_context(tool), errors))
        try:
            return [output_of(tool, errors, deadline) for tool, errors in tools]
        except subprocess.TimeoutExpired:
            raise ScriptError(f"a run took longer than {max_s:.0f} s and was ended: use fewer or "
                              "shorter orders") from None


def output_of(tool: Process, errors, deadline: float) -> str:
    """Returns the output; raises with the last lines of stderr if the tool failed."""
    code = tool.popen.wait(max(0.0, deadline - time.monotonic()))
    if code != 0:
        errors.seek(0)
        lines = errors.read().strip().splitlines()[-5:] or ["no output"]
        raise ScriptError(f"{tool.command[0]} failed ({code}): " + "\n  ".join(lines))
    return tool.printed()


# ---------------------------------------------------------------- output


class Table:
    """A table that is printed row by row; nothing is printed if `silent`."""

    def __init__(self, columns: list[tuple[str, int]], silent: bool) -> None:
        self.columns, self.silent = columns, silent

    def header(self) -> None:
        self.print("")
        self.row([name for name, _ in self.columns])

    def row(self, cells: list) -> None:
        widths = [width for _, width in self.columns]
        first, *rest = (str(cell) for cell in cells)
        self.print(f"{first:<{widths[0]}}"
                   + "".join(f"  {cell:>{width}}" for cell, width in zip(rest, widths[1:])))

    def print(self, text: str) -> None:
        if not self.silent:
            print(text, flush=True)


def counts_of(counts: dict) -> str:
    """Formats counts: `3 sold out, 1 lock busy`."""
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
