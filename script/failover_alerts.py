"""The alerts of deploy/prometheus during a fault: used by script/test-failover."""

import json
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from ha_cluster import read_json
from ha_programs import Program, find_program
from integration import REPOSITORY
from processes import free_ports, until

RAISED = "count by (alertname, alertstate) (ALERTS)"
LABELS = ("alertname", "alertstate", "job", "instance")


class Alerts:
    """A Prometheus with these rules during the block. Afterwards `lines` says which alerts were
    pending or firing, and for how long; without those that were so before the fault. Each is of one
    fault: `HoldfastErrors` looks two minutes back."""

    def __init__(self, cluster):
        self.cluster, self.lines = cluster, []
        self.binary = find_program("prometheus")

    def __enter__(self):
        if not self.binary:
            return self
        folder = Path(tempfile.mkdtemp(prefix="prometheus-", dir=self.cluster.folder.path))
        address = f"127.0.0.1:{free_ports(1)}"
        self.url = f"http://{address}/api/v1/query"
        jobs = {"holdfast": "shop", "patroni": "patroni"}
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s",
                             "evaluation_interval": "1s"},
                  "rule_files": [str(REPOSITORY / "deploy/prometheus/alerts.yml")],
                  "scrape_configs": [self.scraped(job, kind) for job, kind in jobs.items()]}
        # Each JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        command = [self.binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                   f"--web.listen-address={address}"]
        self.program = Program("prometheus", folder, command)
        self.cluster.extra.append(self.program)
        self.program.start()

        count = len(jobs) * len(self.cluster.nodes)
        until("Prometheus reads all metrics", lambda: len(self.query("up == 1")) == count, 30)
        # Until the rules have been evaluated with them. The audit, which is hourly, may be overdue.
        time.sleep(2)
        self.before, self.began = set(self.query(RAISED)), time.monotonic()
        return self

    def scraped(self, job, kind):
        targets = [f"127.0.0.1:{node.ports[kind]}" for node in self.cluster.nodes]
        return {"job_name": job, "static_configs": [{"targets": targets}]}

    def query(self, expression):
        """Values by alert and state, or by target."""
        found = read_json(f"{self.url}?{urlencode({'query': expression})}", 5)
        series = found[1]["data"]["result"] if found and found[0] == 200 else []
        return {" ".join(filter(None, map(one["metric"].get, LABELS))): int(one["value"][1])
                for one in series}

    def __exit__(self, *_):
        if not self.binary:
            self.lines = ["none evaluated: Prometheus is missing (`script/bootstrap --tests`)"]
            return
        # The rules are evaluated once a second.
        window = f"{int(time.monotonic() - self.began)}s:1s"
        found = self.query(f"count_over_time(({RAISED})[{window}])")
        self.lines = [f"{key} for {seconds} s" for key, seconds in sorted(found.items())
                      if key not in self.before]
        self.program.end()
        self.cluster.extra.remove(self.program)
