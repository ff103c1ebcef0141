"""Validates rendered manifests; called by script/check-kubernetes."""

import json
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.31"
# Seconds that a replica needs after the drain: requests in flight, then their transactions
# (src/app.rs).
FINISH_S = 10 + 3
KINDS = {"ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service", "ServiceMonitor"}


def check_pod(name: str, pod: dict) -> list:
    faults = []
    context = pod.get("securityContext", {})
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        faults.append(f"{name} needs runAsNonRoot and a numeric runAsUser")
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        if not context.get("readOnlyRootFilesystem") or context.get("allowPrivilegeEscalation") is not False:
            faults.append(f"{name} needs readOnlyRootFilesystem and no allowPrivilegeEscalation")
        if "requests" not in container.get("resources", {}):
            faults.append(f"{name} needs resources.requests")
        for variable in container.get("env", []):
            if variable["name"].endswith("_URL") and "secretKeyRef" not in variable.get("valueFrom", {}):
                faults.append(f"{name}: {variable['name']} must be a secretKeyRef")
    return faults


def check_deployment(deployment: dict, config: dict, service: dict) -> list:
    faults = []
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    shutdown = int(config["data"]["HOLDFAST_DRAIN_S"]) + FINISH_S
    if pod.get("terminationGracePeriodSeconds", 30) <= shutdown:
        faults.append(f"terminationGracePeriodSeconds must be longer than {shutdown}")
    for probe, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        if container.get(f"{probe}Probe", {}).get("httpGet", {}).get("path") != path:
            faults.append(f"the {probe} probe must ask for {path}")
    replica = next((it for it in container["env"] if it["name"] == "HOLDFAST_REPLICA"), {})
    if replica.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") != "metadata.name":
        faults.append("HOLDFAST_REPLICA must be the pod's name")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    if not service["spec"]["selector"].items() <= labels:
        faults.append("the service does not select the replicas")
    return faults


def main() -> int:
    documents = [it for it in yaml.safe_load_all(Path(sys.argv[1]).read_text()) if it]
    monitor_schema = json.loads(Path(__file__).with_name("service-monitor-schema.json").read_text())
    faults = []
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        try:
            if document["kind"] == "ServiceMonitor":
                jsonschema.validate(document, monitor_schema)
            else:
                kubernetes_validate.validate(document, VERSION, strict=True)
        except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as error:
            faults.append(f"{name}: {'.'.join(map(str, error.path))}: {error.message}")
        if document["kind"] in ("Deployment", "Job"):
            faults += check_pod(name, document["spec"]["template"]["spec"])
    by_kind = {document["kind"]: document for document in documents}
    if set(by_kind) != KINDS:
        faults.append(f"the resources must be of the kinds {sorted(KINDS)}, not {sorted(by_kind)}")
    else:
        faults += check_deployment(*(by_kind[kind] for kind in ("Deployment", "ConfigMap", "Service")))
    for fault in faults:
        print(f"script/check-kubernetes: {fault}", file=sys.stderr)
    if not faults:
        print(f"{len(documents)} resources are valid for Kubernetes {VERSION}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
