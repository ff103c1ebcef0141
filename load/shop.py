"""The shop as the load stories see it: where its replicas are, and the few requests around a run.

Only loopback is taken for granted; any other machine has to be said twice (`--yes-remote`).
"""

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

# A request lives at most 8 s on the server: whoever waits longer waits for nobody.
ANSWER_TIMEOUT_S = 15


class Trouble(Exception):
    """Why nothing could be run, and what to do about it."""


@dataclass
class Person:
    """Somebody who can sign in, and the variables that name somebody else."""

    name: str
    password: str = field(repr=False)
    variables: str


def find_base_urls(options) -> list[str]:
    """The replicas to throw at: said, in the environment, or those of the running `up`."""
    text = options.base_urls or os.environ.get("HOLDFAST_REPLICAS") or replicas_of_up(options.data)
    urls = list(dict.fromkeys(base_url(part.strip()) for part in text.split(",") if part.strip()))
    if not urls:
        raise Trouble("BASE_URLS names no server")
    for url in urls:
        if not options.yes_remote and not is_loopback(url):
            raise Trouble(f"{url} is not this machine; a load test of somebody else's has to be "
                          "said twice: add --yes-remote if its owner agrees")
    return urls


def replicas_of_up(data: Optional[str]) -> str:
    """HOLDFAST_REPLICAS out of the file that `holdfast up` keeps while it is ready."""
    folder = Path(data) if data else REPOSITORY / ".holdfast"
    file = folder / "env"
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        raise Trouble(f"BASE_URLS names no server, and no `holdfast up` is running in "
                      f"{folder}: start one with script/server") from None
    except OSError as error:
        raise Trouble(f"{file} can't be read: {error.strerror}; run this as whoever started the "
                      "server, or set BASE_URLS") from None
    for line in lines:
        for word in shlex.split(line, comments=True):
            if word.startswith("HOLDFAST_REPLICAS="):
                return word.partition("=")[2]
    raise Trouble(f"{file} does not say HOLDFAST_REPLICAS: set BASE_URLS")


def base_url(text: str) -> str:
    """`http://host:port`, and nothing else."""
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = None
    plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc \
            or not plain or (":" in parts.netloc.rpartition("]")[2] and port is None):
        raise Trouble(f"{text!r} is no base URL: it should look like http://127.0.0.1:8080")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def is_loopback(url: str) -> bool:
    """Whether every address of the host is this machine's own."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Trouble(f"{parts.hostname} is not known: {error.strerror}") from None
    return all(ip_address(entry[4][0].partition("%")[0]).is_loopback for entry in found)


def order_headers(token: str, lock: Optional[str], work_ms: int) -> dict[str, str]:
    """What every order of a run carries, apart from its key; the server's own lock when none is
    named."""
    said = {"Authorization": f"Bearer {token}"}
    if lock:
        said["Holdfast-Lock"] = lock
    if work_ms:
        said["Holdfast-Work-Ms"] = str(work_ms)
    return said


def order_body(sku: str) -> str:
    """Every order asks for one unit."""
    return json.dumps({"lines": [{"sku": sku, "quantity": 1}]})


def call(base: str, method: str, path: str, token: str = "", body: Optional[dict] = None,
         more_headers: Optional[dict] = None):
    """One request; gives status, headers and the parsed body. Follows nothing, retries nothing."""
    parts = urlsplit(base)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=ANSWER_TIMEOUT_S)
    headers = {"Accept": "application/json", **(more_headers or {})}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(f"no server answers at {base} ({error}): start one with script/server, or "
                      "set BASE_URLS") from None
    finally:
        connection.close()
    try:
        parsed = json.loads(text) if text else {}
    except ValueError:
        parsed = {}
    return answer.status, answer.headers, parsed


def refusal(what: str, base: str, status: int, parsed) -> Trouble:
    """A refusal in the server's own words."""
    detail = parsed.get("detail") or parsed.get("title") if isinstance(parsed, dict) else None
    return Trouble(f"{what}: {base} said {status}" + (f", {detail}" if detail else ""))


def check_ready(base: str) -> None:
    """Whether the server is there, and its Postgres and Redis behind it."""
    status, _, parsed = call(base, "GET", "/readyz")
    if status != 200:
        raise Trouble(f"the shop at {base} is not ready ({status}): {json.dumps(parsed)}")


@contextmanager
def signed_in(base: str, person: Person) -> Iterator[str]:
    """A session's token, good at every replica; the session ends with the block."""
    status, _, parsed = call(base, "POST", "/api/sessions",
                             body={"user": person.name, "password": person.password})
    if status == 401:
        raise Trouble(f"{base} does not let {person.name} in: set {person.variables}")
    if status != 201 or "token" not in parsed:
        raise refusal(f"{person.name} can't sign in", base, status, parsed)
    try:
        yield parsed["token"]
    finally:
        try:
            call(base, "DELETE", "/api/sessions", parsed["token"])
        except Trouble:
            pass  # whoever is gone has no sessions to end


def put_on_the_shelf(base: str, admin: str, stock: int) -> str:
    """A throw-away item; gives its sku."""
    status, _, parsed = call(base, "POST", "/api/lab/items", admin, {"stock": stock})
    if status == 403:
        raise refusal("the lab is off there or not this user's (`--lab on` or HOLDFAST_LAB=on "
                      "turns it on)", base, status, parsed)
    if status != 201 or "sku" not in parsed:
        raise refusal("no throw-away item to be had", base, status, parsed)
    return parsed["sku"]


def place_one(base: str, token: str, headers: dict[str, str], body: str) -> str:
    """One order that has to succeed; gives the name of the strategy that took it."""
    said = {**headers, "Idempotency-Key": uuid.uuid4().hex}
    status, answered, parsed = call(base, "POST", "/api/orders", token, json.loads(body), said)
    if status != 201:
        raise refusal("an order is refused", base, status, parsed)
    return answered.get("Holdfast-Strategy") or "unnamed"


def audit(base: str, admin: str, sku: str) -> dict:
    """What the item's ledger says."""
    status, _, parsed = call(base, "GET", f"/api/items/{sku}/audit", admin)
    if status != 200:
        raise refusal(f"no audit of {sku}", base, status, parsed)
    return parsed
