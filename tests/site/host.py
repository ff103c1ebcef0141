"""Hosts of the site for its tests: the same folder under several paths of one server."""

import contextlib
import functools
import http.server
import threading

SUB_PATH = "/some/where/"
# The same site on a host that allows no WebAssembly, on one that lacks a file, on a slow one.
STRICT, BROKEN, SLOW = "/strict/", "/broken/", "/slow/"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folder under the sub-paths, and nothing else."""

    # Set when the slow host may send the rest.
    rest_may_follow = threading.Event()
    # The paths that were asked for, also by workers, whose requests the browser does not tell.
    asked = set()

    def translate_path(self, path):
        self.asked.add(path)
        root = next((root for root in (SUB_PATH, STRICT, BROKEN, SLOW) if path.startswith(root)), None)
        if not root or root == BROKEN and path.endswith("pglite.wasm"):
            return "/nothing/here"
        return super().translate_path("/" + path.removeprefix(root))

    def end_headers(self):
        if self.path.startswith(STRICT):
            self.send_header("Content-Security-Policy", "script-src 'self'")
        elif self.path.startswith(SLOW):
            # Workers, too, may ask this host only.
            allowed = "script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; worker-src 'self'"
            self.send_header("Content-Security-Policy", allowed)
        super().end_headers()

    def copyfile(self, source, target):
        if self.path.startswith(SLOW) and self.path.endswith("pglite.data"):
            target.write(source.read(3_000_000))
            self.rest_may_follow.wait()
        # The browser gives up files that it no longer needs.
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, target)

    def log_message(self, *_):
        pass


def serve(folder):
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
