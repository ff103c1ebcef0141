"""The shop as the load scripts use it: its replicas, and requests to them."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import socket
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Iterator, Optional
from urllib.parse import urlsplit

REPOSITORY = Path(__file__).resolve().parent.parent

# The server ends every request after 8 s.
REQUEST_TIMEOUT_S = 15


class ScriptError(Exception):
    """The reason why a script cannot run, and the remedy."""


@dataclass
class Credentials:
    """A user, and the environment variables that select another one."""

    name: str
    password: str = field(repr=False)
    variables: str


def demo_user(name: str) -> Credentials:
    return Credentials(name, name, "the password of a demo user")


@dataclass
class ItemAudit:
    """The audit of one item; the fields are those of the API."""

    sku: str
    stock_opening: int  # restocks included
    sold: int
    stock: int
    oversold: int
    drift: int
    breaks: int
    forks: int
    ok: bool


# ---------------------------------------------------------------- replicas


def find_base_urls(options) -> list[str]:
    """Returns the replicas of --base-urls or of the running `holdfast up`."""
    text = options.base_urls or replicas_of_up(options.data)
    urls = list(dict.fromkeys(base_url(part.strip()) for part in text.split(",") if part.strip()))
    if not urls:
        raise ScriptError("--base-urls names no server")
    for url in urls:
        if not options.yes_remote and not is_loopback(url):
            raise ScriptError(f"{url} is another machine: ask its owner, then add --yes-remote")
    return urls


def replicas_of_up(data: str) -> str:
    """Reads HOLDFAST_REPLICAS from the file that `holdfast up` keeps while it is ready."""
    folder = Path(data)
    file = folder / "env"
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        raise ScriptError(f"no `holdfast up` runs in {folder}: start one with script/server, or "
                          "name a server with --base-urls") from None
    except OSError as error:
        raise ScriptError(f"{file} cannot be read: {error.strerror}; run this as the user that "
                          "started the server, or use --base-urls") from None
    for line in lines:
        for word in shlex.split(line, comments=True):
            if word.startswith("HOLDFAST_REPLICAS="):
                return word.partition("=")[2]
    raise ScriptError(f"{file} has no HOLDFAST_REPLICAS: use --base-urls")


def base_url(text: str) -> str:
    """Validates `http://host:port`."""
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = None
    bare = parts.path in ("", "/") and not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc \
            or not bare or (":" in parts.netloc.rpartition("]")[2] and port is None):
        raise ScriptError(f"{text!r} is not a base URL like http://127.0.0.1:8080")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def is_loopback(url: str) -> bool:
    """Returns whether every address of the host is a loopback address."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ScriptError(f"{parts.hostname} has no address: {error.strerror}") from None
    return all(ip_address(entry[4][0].partition("%")[0]).is_loopback for entry in found)


# ---------------------------------------------------------------- requests


class Connection:
    """A keep-alive connection to one replica, for one thread."""

    def __init__(self, base: str, token: str = "", source: str = "") -> None:
        parts = urlsplit(base)
        kind = http.client.HTTPSConnection if parts.scheme == "https" \
            else http.client.HTTPConnection
        self.http = kind(parts.hostname, parts.port, timeout=REQUEST_TIMEOUT_S,
                         source_address=(source, 0) if source else None)
        self.token = token

    def send(self, method: str, path: str, body: Optional[dict] = None,
             headers: Optional[dict] = None):
        """Sends a request; returns status, headers and the parsed body ({} if it is not JSON)."""
        all_headers = {"Accept": "application/json", **(headers or {})}
        if self.token:
            all_headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            all_headers["Content-Type"] = "application/json"
        request = (method, path, None if body is None else json.dumps(body), all_headers)
        was_open = self.http.sock is not None
        try:
            return self.exchange(request)
        except socket.timeout:
            raise
        except (OSError, http.client.HTTPException):
            if not was_open:
                raise
        # The server has closed the idle connection.
        return self.exchange(request)

    def exchange(self, request: tuple):
        try:
            self.http.request(*request)
            response = self.http.getresponse()
            text = response.read()
        except BaseException:
            self.close()
            raise
        try:
            return response.status, response.headers, json.loads(text) if text else {}
        except ValueError:
            return response.status, response.headers, {}

    def close(self) -> None:
        self.http.close()


def call(base: str, method: str, path: str, token: str = "", body: Optional[dict] = None,
         headers: Optional[dict] = None):
    """Sends one request on its own connection, like `Connection.send`."""
    connection = Connection(base, token)
    try:
        return connection.send(method, path, body, headers)
    except (OSError, http.client.HTTPException) as error:
        raise ScriptError(f"no server responds at {base} ({error}): start one with script/server, "
                          "or use --base-urls") from None
    finally:
        connection.close()


def unexpected(what: str, base: str, status: int, body) -> ScriptError:
    """An unexpected response, with the server's own explanation."""
    detail = body.get("detail") or body.get("title") if isinstance(body, dict) else None
    return ScriptError(f"{what}: {base} responded {status}" + (f", {detail}" if detail else ""))


def check_ready(base: str) -> None:
    status, _, body = call(base, "GET", "/readyz")
    if status != 200:
        raise ScriptError(f"the shop at {base} is not ready ({status}): {json.dumps(body)}")


def sign_in(base: str, user: Credentials) -> str:
    """Returns the token of a new session, which is valid at every replica."""
    credentials = {"user": user.name, "password": user.password}
    status, _, body = call(base, "POST", "/api/sessions", body=credentials)
    if status == 401:
        raise ScriptError(f"{base} rejects the password of {user.name}: set {user.variables}")
    if status != 201 or "token" not in body:
        raise unexpected(f"{user.name} cannot sign in", base, status, body)
    return body["token"]


@contextmanager
def signed_in(base: str, user: Credentials) -> Iterator[str]:
    """A session that ends with the block."""
    token = sign_in(base, user)
    try:
        yield token
    finally:
        try:
            call(base, "DELETE", "/api/sessions", token)
        except ScriptError:
            pass  # a server that is gone has no sessions


def create_lab_item(base: str, admin: str, stock: int) -> str:
    """Creates an item of the lab; returns its sku."""
    status, _, body = call(base, "POST", "/api/lab/items", admin, {"stock": stock})
    if status == 403:
        raise unexpected("the lab is off, or this user is no admin (`--lab on` or HOLDFAST_LAB=on "
                         "turns it on)", base, status, body)
    if status != 201 or "sku" not in body:
        raise unexpected("no item of the lab was created", base, status, body)
    return body["sku"]


def order_of(sku: str) -> dict:
    """The body of an order of one unit."""
    return {"lines": [{"sku": sku, "quantity": 1}]}


def new_key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def order_headers(token: str, lock: Optional[str], work_ms: int) -> dict[str, str]:
    """The headers of the orders of a run, except for the idempotency key. Without `lock` they use
    the server's own strategy."""
    headers = {"Authorization": f"Bearer {token}"}
    if lock:
        headers["Holdfast-Lock"] = lock
    if work_ms:
        headers["Holdfast-Work-Ms"] = str(work_ms)
    return headers


def place_order_at_each(base_urls: list[str], headers: dict[str, str], sku: str) -> str:
    """Places an order at every replica, so that a rejection of the whole load is reported with the
    server's explanation; returns the strategy that executed them."""
    names = []
    for base in base_urls:
        status, received, body = call(base, "POST", "/api/orders", body=order_of(sku),
                                      headers={**headers, **new_key()})
        if status != 201:
            raise unexpected("an order was rejected", base, status, body)
        names.append(received.get("Holdfast-Strategy") or "unnamed")
    return " / ".join(dict.fromkeys(names))


def audit(base: str, admin: str, sku: str) -> ItemAudit:
    status, _, body = call(base, "GET", f"/api/items/{sku}/audit", admin)
    if status != 200:
        raise unexpected(f"no audit of {sku}", base, status, body)
    return ItemAudit(sku, body["opening"] + body["restocked"], body["sold"], body["stock"],
                     body["oversold"], body["drift"], body["breaks"], len(body["forks"]),
                     body["ok"])
