#!/usr/bin/env python3
"""A shop for the tests of `holdfast judge service` that is no race's victim: MODE says what else is
wrong with it. Standard library only.

    misfits.py MODE PORT     serves; an item is a file of the working directory
    misfits.py make UNITS    makes an item, and prints it
    misfits.py books ITEM    prints its books
    misfits.py fails         prints why, and fails
    misfits.py leaves        leaves a process behind that keeps its output
"""

import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = sys.argv[1]
# The file of what was left running has a line for each process.
LEFT = Path("left")
# It detaches itself from this program, whose child ends at once.
LEAVE = (
    "import subprocess;"
    "print(subprocess.Popen(['sleep', '600'], stdout=2, start_new_session=True).pid)"
)


def sell(item):
    """Takes a unit under a lock of the kernel; returns whether there was one."""
    with open(f"{item}.json", "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        books = json.load(file)
        if books["stock"] == 0:
            return False
        file.seek(0)
        file.truncate()
        json.dump({"stock": books["stock"] - 1, "sold": books["sold"] + 1}, file)
        return True


def units_left(item):
    return json.loads(Path(f"{item}.json").read_text())["stock"]


class Shop(BaseHTTPRequestHandler):
    def respond(self, status, text, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if MODE == "signs-in":
            self.respond(302, "", Location="/sign-in")
        else:
            self.respond(500 if MODE == "never-ready" else 200, "not today")

    def do_POST(self):
        item = self.path.rsplit("/", 1)[-1]
        if MODE == "redirects":
            self.respond(302, "", Location="/sign-in")
        elif MODE == "pages":
            self.respond(200, "<html><h1>Please sign in</h1></html>")
        elif MODE == "errors":
            self.respond(500, "out of paper")
        elif MODE == "hangs":
            Path("ordered").touch()
            time.sleep(3600)
        elif MODE == "dies":
            print("out of ink", file=sys.stderr, flush=True)
            os._exit(3)
        elif MODE == "small" and units_left(item) > 5:  # more than in the control
            self.respond(500, "too much for a small shop")
        elif sell(item) or MODE == "thanks":  # also for an order that it refuses
            self.respond(201, "sold")
        else:
            self.respond(409, "sold out")

    def log_message(self, *_):
        if MODE == "floods":
            print("a line for each request", flush=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # of all buyers at once


def leave_process():
    with LEFT.open("a") as left:
        subprocess.run([sys.executable, "-c", LEAVE], stdout=left, check=True)


def flood():
    """Prints 100 MB, half of it in one line."""
    line = "x" * 999 + "\n"
    for _ in range(50):
        sys.stdout.write(line * 1_000)
    for _ in range(50):
        sys.stdout.write("y" * 1_000_000)
    print(flush=True)


def serve(port):
    if MODE == "exits":
        print("out of paper", file=sys.stderr)
        sys.exit(3)
    if MODE == "leaks":
        leave_process()
    if MODE == "floods":
        flood()
    Server(("127.0.0.1", 0 if MODE == "other-port" else port), Shop).serve_forever()


def main():
    if MODE == "make":
        item = f"item-{uuid.uuid4()}"
        Path(f"{item}.json").write_text(json.dumps({"stock": int(sys.argv[2]), "sold": 0}))
        print(json.dumps({"item": item}))
    elif MODE == "books":
        print(Path(f"{sys.argv[2]}.json").read_text())
    elif MODE == "fails":
        print("made one table")
        sys.exit("out of paper")
    elif MODE == "leaves":
        leave_process()
    else:
        serve(int(sys.argv[2]))


if __name__ == "__main__":
    main()
