"""The shop of deploy/ha on one machine: what script/ha and script/test-failover share.

Three nodes, each with etcd, a Postgres under Patroni, HAProxy and a replica of the shop; and one Redis.
All listen on 127.0.0.1 only, as the user `postgres` (the replicas as the caller), with passwords of
their own.
"""

import fcntl
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from ha_programs import Postgres, Program, find_program
from integration import REPOSITORY, Failed, check, run
import shop
from processes import claim, free_ports, until
import socket

DEPLOY = REPOSITORY / "deploy/ha"
NODES = "abc"
STATE = "holdfast-ha.json"
# Of what is in the folder. Another one can't be continued.
VERSION = 1
SERVICES_USER = "postgres"
START_TIMEOUT_S = 120
# The ports of a node, in this order; then that of Redis, and a spare one.
PORTS = ("etcd", "peer", "patroni", "postgres", "haproxy", "shop", "pgbouncer")
# The first Patroni that asks etcd's newer API whether the primary's key is still its own. An earlier
# one that was paused takes the key from the node that has taken over, and orders are lost.
SAFE_WITH_ETCD3 = (3, 0, 3)


# ---------------------------------------------------------------- what is needed


def find_programs(binary):
    """Paths of the programs. Fails with one sentence that says what to install."""
    if not sys.platform.startswith("linux"):
        raise Failed("this needs Linux, with the packages of Debian")
    bins = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True,
                  key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0))
    places = [str(path) for path in bins]
    found = {name: find_program(name, *places)
             for name in ("patroni", "etcd", "haproxy", "postgres", "psql", "setpriv")}
    found["redis-server"] = find_program("redis-server") or find_program("valkey-server")
    missing = [name for name, path in found.items() if not path]
    if missing:
        raise Failed(f"{', '.join(missing)} missing: install the packages with "
                     "`script/bootstrap --only ha` (Debian: patroni, etcd-server, haproxy, "
                     "postgresql, redis-server)")
    found["pgbouncer"] = find_program("pgbouncer")
    # A link, perhaps, from a folder without its other programs.
    found["postgres"] = os.path.realpath(found["postgres"])
    found["holdfast"] = binary or str(REPOSITORY / "target/debug/holdfast")
    if not os.access(found["holdfast"], os.X_OK):
        raise Failed(f"{found['holdfast']} can't be executed: build it with `cargo build`, or name "
                     "another program with --binary")
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(SERVICES_USER)
        except KeyError:
            raise Failed(f"there is no user {SERVICES_USER}, as whom root runs Postgres: install "
                         "the package postgresql") from None
    return found


class Folder:
    """Where everything is: passwords, ports, data and logs. Without a path a new one, which is
    removed at the end."""

    def __init__(self, path=None):
        self.is_temporary = path is None
        # Not /tmp, which may be in memory. Removed by `remove` alone.
        self.path = Path(path).absolute() if path else \
            Path(tempfile.mkdtemp(prefix="holdfast-ha-", dir="/var/tmp"))
        try:
            self.open()
        except BaseException:
            if self.is_temporary:
                self.remove()
            raise

    def open(self):
        state_file = self.path / STATE
        if self.path.exists() and not self.path.is_dir():
            raise Failed(f"{self.path} is no folder: name another one with --data")
        if self.path.is_dir() and any(self.path.iterdir()) and not state_file.exists():
            raise Failed(f"{self.path} has files that are not of script/ha: name a new folder with "
                         "--data")
        self.path.mkdir(parents=True, exist_ok=True)
        # The user of the services goes through it, into its own folders.
        self.path.chmod(0o711)
        self.lock = open(self.path / "lock", "a")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed(f"another script/ha runs in {self.path}: end it, or name another folder "
                         "with --data") from None
        self.is_new = not state_file.exists()
        count = len(PORTS) * len(NODES) + 2
        if self.is_new:
            self.state = {"version": VERSION, "first_port": free_ports(count),
                          "passwords": {name: secrets.token_hex(16) for name in
                                        ("superuser", "replication", "shop", "redis")}}
            self.write()
        else:
            self.read(state_file)
            # While a node is down, a script beside this one could choose its ports.
            claim(range(self.state["first_port"], self.state["first_port"] + count))

    def read(self, state_file):
        try:
            self.state = json.loads(state_file.read_text())
            version = self.state["version"]
        except (ValueError, KeyError, TypeError):
            version = "none that can be read"
        if version != VERSION:
            raise Failed(f"{self.path} is of another build (version {version}, not {VERSION}): name "
                         "a new folder with --data, and remove this one when its data is no longer "
                         "needed")

        if not self.state.get("is_complete"):
            raise Failed(f"the first start in {self.path} was ended before it had made the database: "
                         "remove this folder, or name a new one with --data")

    def complete(self):
        """Notes that the database is made."""
        self.state["is_complete"] = True
        self.write()

    def write(self):
        new = self.path / f"{STATE}.new"
        new.touch(0o600)
        new.write_text(json.dumps(self.state))
        new.rename(self.path / STATE)

    def make(self, name):
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        if os.geteuid() == 0:
            user = pwd.getpwnam(SERVICES_USER)
            os.chown(folder, user.pw_uid, user.pw_gid)
        return folder

    def remove(self):
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)


def uses_etcd3(patroni):
    """Whether this Patroni may use etcd's newer API."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", run([patroni, "--version"]).stdout)
    return found is not None and tuple(map(int, found.groups())) >= SAFE_WITH_ETCD3


def check_ports(ports):
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                raise Failed(f"port {port} is taken: end the program that listens on it (`ss -ltnp` "
                             "names it), or name a new folder with --data, which gets other "
                             "ports") from None


# ---------------------------------------------------------------- nodes


class Node:
    """What runs on one of the three machines."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        first = cluster.folder.state["first_port"] + NODES.index(name) * len(PORTS)
        self.ports = {what: first + n for n, what in enumerate(PORTS)}
        self.url = f"http://127.0.0.1:{self.ports['shop']}"

    def prepare(self):
        cluster, programs = self.cluster, self.cluster.programs
        folder = cluster.folder.make(f"node-{self.name}")
        # The user of the services may not reach the repository.
        for name in ("patroni.yml", "haproxy.cfg"):
            shutil.copy(DEPLOY / name, folder)
            (folder / name).chmod(0o644)
        self.postgres = Postgres(folder / "postgres")
        env = cluster.node_env(self)

        def program(name, command, death_signal="KILL"):
            return Program(name, folder, command, env, SERVICES_USER, death_signal)

        self.etcd = program("etcd", [programs["etcd"]])
        # It stops its Postgres first.
        self.patroni = program("patroni", [programs["patroni"], "patroni.yml"], "TERM")
        self.haproxy = program("haproxy", [programs["haproxy"], "-f", "haproxy.cfg"])
        if cluster.pooler:
            self.prepare_pooler(folder)
            self.pgbouncer = program("pgbouncer", [programs["pgbouncer"], "pgbouncer.ini"])
        self.shop = self.replica(self.name, self.ports["shop"], cluster.database_url(self))

    def prepare_pooler(self, folder):
        target = self.ports["haproxy" if self.cluster.pooler == "before" else "postgres"]
        settings = (DEPLOY / "pgbouncer.ini").read_text()
        settings = settings.replace("port=5000", f"port={target}")
        settings = settings.replace("= 6432", f"= {self.ports['pgbouncer']}")
        # Also the database and the superuser with whom script/ha makes it.
        settings = settings.replace("\n[pgbouncer]", f"* = host=127.0.0.1 port={target}\n\n[pgbouncer]")
        passwords = self.cluster.passwords
        users = f'"holdfast" "{passwords["shop"]}"\n"postgres" "{passwords["superuser"]}"\n'
        for name, text in (("pgbouncer.ini", settings), ("userlist.txt", users)):
            path = folder / name
            path.touch(0o600)
            path.write_text(text)
            if os.geteuid() == 0:
                shutil.chown(path, SERVICES_USER, SERVICES_USER)

    def replica(self, name, port, database_url):
        """A replica of the shop, as the caller."""
        env = {"DATABASE_URL": database_url, "REDIS_URL": self.cluster.redis_url,
               "HOLDFAST_LISTEN": f"127.0.0.1:{port}", "HOLDFAST_REPLICA": name,
               "HOLDFAST_REPLICAS": ",".join(node.url for node in self.cluster.nodes),
               "HOLDFAST_LAB": "on", "HOLDFAST_DRAIN_S": "0", **self.cluster.shop_env}
        folder = self.cluster.folder.path / f"shop-{name}"
        folder.mkdir(exist_ok=True)
        return Program(f"shop-{name}", folder, [self.cluster.programs["holdfast"], "serve"], env)

    def freeze(self):
        """Pauses Patroni and Postgres, as a machine that stops computing."""
        self.patroni.send(signal.SIGSTOP)
        self.postgres.send(signal.SIGSTOP)

    def thaw(self):
        self.postgres.send(signal.SIGCONT)
        self.patroni.send(signal.SIGCONT)

    def kill_machine(self):
        """Kills Patroni, Postgres and etcd at once."""
        self.patroni.send(signal.SIGKILL)
        self.etcd.send(signal.SIGKILL)
        self.postgres.kill()
        self.patroni.wait()
        self.etcd.wait()

    def start_machine(self):
        self.etcd.start()
        self.patroni.start()

    def psql(self, statement, timeout_s=10):
        """Executes a statement at this very Postgres, as the shop; returns exit code and output."""
        return self.cluster.psql(self.ports["postgres"], "holdfast", "holdfast", statement,
                                 timeout_s)


def read_json(url, timeout_s=2):
    """The status and the body of a response; None without one."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            return response.status, json.loads(response.read() or "{}")
    except urllib.error.HTTPError as error:
        with suppress(ValueError, OSError):
            return error.code, json.loads(error.read() or "{}")
        return error.code, {}
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------- all of it


class Cluster:
    """`pooler` is `before` for a PgBouncer between each replica and its HAProxy, `behind` for one
    between HAProxy and each Postgres."""

    def __init__(self, folder, programs, pooler=None, etcd3=None, shop_env=None):
        self.folder, self.programs, self.pooler = folder, programs, pooler
        self.shop_env = shop_env or {}
        self.etcd3 = uses_etcd3(programs["patroni"]) if etcd3 is None else etcd3
        if pooler and not programs["pgbouncer"]:
            raise Failed("pgbouncer is missing: install the package pgbouncer")
        self.passwords = folder.state["passwords"]
        self.redis_port = folder.state["first_port"] + len(PORTS) * len(NODES)
        self.spare_port = self.redis_port + 1
        self.redis_url = f"redis://:{self.passwords['redis']}@127.0.0.1:{self.redis_port}"
        self.nodes = [Node(self, name) for name in NODES]
        self.extra = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def etcd_env(self):
        """The variable by which Patroni and patronictl find etcd."""
        name = "PATRONI_ETCD3_HOSTS" if self.etcd3 else "PATRONI_ETCD_HOSTS"
        return {name: ",".join(f"127.0.0.1:{node.ports['etcd']}" for node in self.nodes)}

    def node_env(self, node):
        """The variables of deploy/ha/node.env."""
        def address(port):
            return f"127.0.0.1:{port}"

        ports = node.ports
        members = ",".join(f"{other.name}=http://{address(other.ports['peer'])}"
                           for other in self.nodes)
        env = {
            "ETCD_NAME": node.name, "ETCD_DATA_DIR": "etcd",
            "ETCD_LISTEN_CLIENT_URLS": f"http://{address(ports['etcd'])}",
            "ETCD_ADVERTISE_CLIENT_URLS": f"http://{address(ports['etcd'])}",
            "ETCD_LISTEN_PEER_URLS": f"http://{address(ports['peer'])}",
            "ETCD_INITIAL_ADVERTISE_PEER_URLS": f"http://{address(ports['peer'])}",
            "ETCD_INITIAL_CLUSTER": members, "ETCD_INITIAL_CLUSTER_TOKEN": "holdfast",
            "ETCD_ENABLE_V2": str(not self.etcd3).lower(),
            # Three members on one disk: the defaults take a slow write for a lost leader.
            "ETCD_HEARTBEAT_INTERVAL": "250", "ETCD_ELECTION_TIMEOUT": "2500",
            "PATRONI_NAME": node.name, **self.etcd_env(),
            "PATRONI_RESTAPI_LISTEN": address(ports["patroni"]),
            "PATRONI_RESTAPI_CONNECT_ADDRESS": address(ports["patroni"]),
            "PATRONI_POSTGRESQL_LISTEN": address(ports["postgres"]),
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": address(ports["postgres"]),
            "PATRONI_POSTGRESQL_DATA_DIR": str(node.postgres.data),
            "PATRONI_POSTGRESQL_BIN_DIR": os.path.dirname(self.programs["postgres"]),
            "PATRONI_POSTGRESQL_PGPASS": str(node.postgres.data.parent / "pgpass"),
            "PATRONI_SUPERUSER_USERNAME": "postgres",
            "PATRONI_SUPERUSER_PASSWORD": self.passwords["superuser"],
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_REPLICATION_PASSWORD": self.passwords["replication"],
            "HA_POSTGRES": address(ports["haproxy"]),
        }
        for other in self.nodes:
            place = "pgbouncer" if self.pooler == "behind" else "postgres"
            env[f"HA_{other.name.upper()}_POSTGRES"] = address(other.ports[place])
            env[f"HA_{other.name.upper()}_PATRONI"] = str(other.ports["patroni"])
        return env

    def database_url(self, node, port=None):
        password = self.passwords["shop"]
        place = "pgbouncer" if self.pooler == "before" else "haproxy"
        return f"postgres://holdfast:{password}@127.0.0.1:{port or node.ports[place]}/holdfast"

    # ---- start and end

    def start(self):
        ports = [port for node in self.nodes for port in node.ports.values()]
        check_ports([*ports, self.redis_port])
        redis_folder = self.folder.make("redis")
        settings = redis_folder / "redis.conf"
        settings.touch(0o600)
        if os.geteuid() == 0:
            shutil.chown(settings, SERVICES_USER, SERVICES_USER)
        settings.write_text(f"bind 127.0.0.1\nport {self.redis_port}\nsave \"\"\n"
                            f"requirepass {self.passwords['redis']}\n")
        self.redis = Program("redis", redis_folder, [self.programs["redis-server"], settings],
                             user=SERVICES_USER)
        for node in self.nodes:
            node.prepare()
        for node in self.nodes:
            node.etcd.start()
        self.redis.start()
        for node in self.nodes:
            node.patroni.start()
            node.haproxy.start()
            if self.pooler:
                node.pgbouncer.start()
        self.wait_until_whole(START_TIMEOUT_S)
        self.make_database()
        for node in self.nodes:
            node.shop.start()
        for node in self.nodes:
            self.wait_until_ready(node)

    def make_database(self):
        until("HAProxy leads to the primary", lambda: self.superuser("select 1")[0] == 0, 30)
        if "holdfast" not in self.superuser("select rolname from pg_roles")[1].split():
            self.superuser(f"create role holdfast login password '{self.passwords['shop']}'", True)
        if "holdfast" not in self.superuser("select datname from pg_database")[1].split():
            self.superuser("create database holdfast owner holdfast", True)
        env = {**os.environ, "DATABASE_URL": self.database_url(self.nodes[0])}
        run([self.programs["holdfast"], "migrate", "--seed", "--demo-users"], env=env)
        self.folder.complete()

    def wait_until_ready(self, node):
        def is_ready():
            node.shop.check_runs()
            return (read_json(f"{node.url}/readyz") or [0])[0] == 200

        until(f"the replica {node.name} is ready", is_ready, START_TIMEOUT_S)

    def programs_of_nodes(self, kind):
        return [getattr(node, kind) for node in self.nodes if hasattr(node, kind)]

    def stop(self):
        """Ends everything, the replicas first, and removes a temporary folder."""
        groups = [[*self.extra, *self.programs_of_nodes("shop")], self.programs_of_nodes("haproxy"),
                  self.programs_of_nodes("pgbouncer"), self.programs_of_nodes("patroni"), self.programs_of_nodes("etcd"),
                  [self.redis] if hasattr(self, "redis") else []]
        for node in self.nodes:
            if hasattr(node, "patroni"):
                node.thaw()
        for group in groups:
            for program in group:
                program.send(signal.SIGCONT)
                program.send(signal.SIGTERM)
            for program in group:
                program.wait()
        # A Patroni that was killed has left its Postgres.
        for node in self.nodes:
            if hasattr(node, "postgres"):
                node.postgres.kill()
        self.folder.remove()

    # ---- what it is like

    def members(self):
        """Name, role and state of each node by Patroni; empty while none responds."""
        for node in self.nodes:
            found = read_json(f"http://127.0.0.1:{node.ports['patroni']}/cluster")
            if found and found[0] == 200:
                return {member["name"]: (member["role"], member["state"])
                        for member in found[1].get("members", [])}
        return {}

    def by_role(self, role):
        found = [name for name, (its, _) in self.members().items() if its == role]
        return [node for node in self.nodes if node.name in found]

    def primary(self):
        return self.wait_for_role("leader")

    def synchronous(self):
        return self.wait_for_role("sync_standby")

    def wait_for_role(self, role):
        """On a busy machine Patroni may not say it in time."""
        found = []
        until(f"Patroni names a {role}", lambda: found.extend(self.by_role(role)) or found, 30)
        return found[0]

    def is_whole(self):
        members = self.members()
        roles = sorted(role for role, _ in members.values())
        states = {state for _, state in members.values()}
        return roles == ["leader", "replica", "sync_standby"] and states <= {"running", "streaming"}

    def wait_until_whole(self, timeout_s=90):
        def is_whole():
            if self.nodes[0].patroni.popen:
                for node in self.nodes:
                    node.patroni.check_runs()
            return self.is_whole()

        try:
            until("a primary and two standbys, one synchronous", is_whole, timeout_s)
        except shop.ScriptError as error:
            raise Failed(f"{error}; Patroni has {self.members()}") from None

    # ---- statements

    def psql(self, port, user, database, statement, timeout_s=10):
        password = self.passwords["superuser" if user == "postgres" else "shop"]
        env = {"PATH": os.environ["PATH"], "PGPASSWORD": password, "PGCONNECT_TIMEOUT": "5"}
        command = [self.programs["psql"], "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
                   str(port), "-U", user, "-d", database, "-c", statement]
        try:
            result = run(command, timeout_s, expect=None, env=env)
        except shop.ScriptError:
            return -1, "no response in time"
        return result.returncode, result.stdout

    def superuser(self, statement, must_work=False):
        port = self.nodes[0].ports["haproxy"]
        code, output = self.psql(port, "postgres", "postgres", statement)
        check(code == 0 or not must_work, f"psql exited with {code}: {output}")
        return code, output

    def audit(self):
        """The exit code and the output of `holdfast audit`."""
        env = {**os.environ, "DATABASE_URL": self.database_url(self.nodes[0])}
        return run([self.programs["holdfast"], "audit"], expect=None, env=env)
