"""What every load story needs besides the shop: its tools, their processes, its command line.

A tool never outlives the story that started it, and never runs longer than it was given.
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
from collections import Counter
from pathlib import Path
from typing import Callable, Optional

from shop import Person, Trouble

LOAD = Path(__file__).resolve().parent
TOOLS = LOAD / ".tools"

# What a tool may take on top of its load to start, to summarise and to stop.
TOOL_GRACE_S = 10


def told(name: str, tell: Callable[[], int]) -> int:
    """Tells a story and returns the exit code; says why when there is nothing to tell."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        return tell()
    except Trouble as trouble:
        print(f"{name}: {trouble}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{name}: stopped", file=sys.stderr)
        return 130


# -------------------------------------------------------------------- options


def add_shop(parser: argparse.ArgumentParser) -> None:
    """Where the shop is, and how the story is told."""
    add = parser.add_argument
    add("--base-urls", metavar="URL,URL", default=os.environ.get("BASE_URLS") or None,
        help="the replicas [env: BASE_URLS; default: HOLDFAST_REPLICAS, from the environment or "
             "from the running `holdfast up`]")
    add("--data", metavar="FOLDER", default=os.environ.get("HOLDFAST_DATA") or None,
        help="data folder of the running `holdfast up` [env: HOLDFAST_DATA; default: .holdfast]")
    add("--json", action="store_true", help="print one JSON document instead of the table")
    add("--yes-remote", action="store_true",
        help="throw orders at a machine that is not this one; ask its owner first")


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, and who buys and who runs the lab."""
    options = parser.parse_args()
    if options.lock and not options.lock.replace("-", "").isalnum():
        parser.error(f"--lock {options.lock!r} is no name of a strategy")
    env = os.environ.get
    options.user = Person(env("HOLDFAST_USER", "alice"), env("HOLDFAST_PASSWORD", "alice"),
                          "HOLDFAST_USER and HOLDFAST_PASSWORD")
    options.admin = Person(env("HOLDFAST_ADMIN", "admin"), env("HOLDFAST_ADMIN_PASSWORD", "admin"),
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


# ------------------------------------------------------------------- the tools


def find_tool(name: str, installed: Path) -> str:
    """The pinned tool of load/setup, or one of that name on the PATH."""
    found = str(installed) if os.access(installed, os.X_OK) else shutil.which(name)
    if not found:
        raise Trouble(f"{name} is missing: run load/setup {name}")
    return found


def find_k6() -> str:
    return find_tool("k6", TOOLS / "k6" / "bin" / "k6")


def run_k6(k6: str, script: str, variables: dict[str, str], seconds: float,
           less: str) -> tuple[dict, dict[str, int]]:
    """Runs a script of this folder; gives the summary that it wrote, and how often it told of what
    strange answer. The variables are not on the command line, where everybody could read the
    token."""
    with tempfile.TemporaryDirectory(prefix="holdfast-k6-") as folder:
        summary, strange = Path(folder, "summary.json"), Path(folder, "strange")
        strange.touch()
        # Nothing is reported to k6's makers, no port of its own is opened, no progress drawn.
        command = [k6, "run", "--no-usage-report", "--address", "", "--quiet", "--no-color",
                   "--log-format", "raw", "--console-output", str(strange), str(LOAD / script)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("K6_")}
        # It shares the machine with the shop, and has memory rather than processor to spare.
        kept.setdefault("GOGC", "400")
        run_tools([command], seconds + TOOL_GRACE_S, less,
                  {**kept, **variables, "SUMMARY": str(summary)})
        found = Counter(line for line in strange.read_text().splitlines() if line)
        return json.loads(summary.read_text()), dict(found)


def run_tools(commands: list[list[str]], seconds: float, less: str,
              env: Optional[dict] = None) -> list[str]:
    """Runs them at the same time and gives what each printed. None of them outlives this call;
    `less` says what to do when they take too long, and `seconds` is with TOOL_GRACE_S, which is the
    tools' own and nothing to tell of."""
    started: list[tuple[subprocess.Popen, object, object]] = []
    deadline = time.monotonic() + seconds
    try:
        for command in commands:
            out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
            started.append((subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                             stderr=err, env=env), out, err))
        for process, _, _ in started:
            process.wait(max(0.0, deadline - time.monotonic()))
        return [output_of(*entry) for entry in started]
    except subprocess.TimeoutExpired:
        raise Trouble(f"the run took longer than {seconds - TOOL_GRACE_S:.0f} s and was ended; "
                      f"{less}") from None
    finally:
        stop([process for process, _, _ in started])


def output_of(process: subprocess.Popen, out, err) -> str:
    """What it printed, or why it failed."""
    out.seek(0)
    err.seek(0)
    if process.returncode != 0:
        said = err.read().strip().splitlines()[-5:] or ["and said nothing"]
        raise Trouble(f"{process.args[0]} failed ({process.returncode}): " + "\n  ".join(said))
    return out.read()


def stop(processes: list[subprocess.Popen]) -> None:
    """Asks, waits, insists."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ------------------------------------------------------------------ the telling


def count(value) -> int:
    """A number, or the length of a list."""
    return value if isinstance(value, int) else len(value)


def listed(counts: dict[str, int]) -> str:
    """`3 sold out, 1 lock busy`"""
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
