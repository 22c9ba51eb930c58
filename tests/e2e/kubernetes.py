"""The Kubernetes manifests: their form, what they say of each other, and their rack, whose pods are
processes here."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from checks import PROGRAM, check, eventually, finish, sample

MANIFESTS = "contrib/kubernetes/switchback.yaml"


def check_form(documents):
    validate = Path(sys.executable).with_name("kubernetes-validate")
    validated = subprocess.run([validate, "--strict", MANIFESTS], capture_output=True, text=True)
    check("Kubernetes' own schemas accept them", validated.returncode == 0, validated)
    names = {(it["kind"], it["metadata"]["name"]) for it in documents}
    check("no two have the same name", len(names) == len(documents))
    for it in documents:
        if it["kind"] == "StatefulSet":
            check_set(it, names)
    labels = [it["spec"]["template"]["metadata"]["labels"] for it in documents
              if it["kind"] == "StatefulSet"]
    for it in documents:
        selector = it.get("spec", {}).get("selector", {})
        selector = selector.get("matchLabels", selector)
        if selector:
            found = [of for of in labels if selector.items() <= of.items()]
            check(f"{it['kind']} {it['metadata']['name']} selects pods that there are", found,
                  selector)


def check_set(it, names):
    name, pod = it["metadata"]["name"], it["spec"]["template"]
    check(f"{name} is of a service that there is", ("Service", it["spec"]["serviceName"]) in names)
    (container,) = pod["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    probed = {container[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")}
    check(f"{name} is probed at ports that it has", probed <= ports, probed)
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in it["spec"].get("volumeClaimTemplates", [])}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    check(f"{name} mounts the volumes that it has", mounted == volumes, mounted ^ volumes)


class Pod:
    """A pod of a StatefulSet: a process with an address, directories and environment as Kubernetes
    would give it."""

    def __init__(self, files, directory, part, index, command):
        self.address = address(part, index)
        self.directory = directory / f"{part}-{index}"
        run, data = self.directory / "run.d", self.directory / "data"
        (run / "secret").mkdir(parents=True)
        data.mkdir()
        (run / "secret/password").write_text("secret")
        # Volumes are directories of this pod's.
        for name, content in files.items():
            (self.directory / name).write_text(content.replace("/var/lib/switchback", str(data)))
        environment = {
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "HOSTNAME": f"switchback-{part}-{index}",
            "POD_IP": self.address,
            # Of its service, which has one pod.
            "SWITCHBACK_CONTROLLER_SERVICE_HOST": address("controller", 0),
            "SWITCHBACK_CONFIG": str(self.directory),
            "SWITCHBACK_RUN": str(run),
        }
        command = [word.replace("/etc/switchback", str(self.directory)) for word in command]
        with open(self.directory / "log", "w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def parts():
    """Each part's StatefulSet, by its name."""
    sets = {it["metadata"]["name"]: it for it in documents if it["kind"] == "StatefulSet"}
    return {name.removeprefix("switchback-"): it["spec"] for name, it in sets.items()}


def address(part, index):
    """The address of a pod."""
    return f"127.77.{list(parts()).index(part)}.{index + 1}"


def redis(pod, *command):
    host = ["-h", pod.address, "-p", "6380", "--no-auth-warning", "-a", "secret"]
    return subprocess.run(["redis-cli", *host, *command], capture_output=True,
                          text=True).stdout.strip()


def check_rack(files, directory):
    pods = {}
    try:
        for part, spec in parts().items():
            (container,) = spec["template"]["spec"]["containers"]
            for index in range(spec["replicas"]):
                pods[part, index] = Pod(files, directory, part, index, container["command"])
        logs = lambda: {str(at): (pod.directory / "log").read_text()[-500:]
                        for at, pod in pods.items()}
        first, second = pods["gateway", 0], pods["gateway", 1]
        served = eventually(lambda: redis(first, "set", "greeting", "hello") == "OK")
        check("a gateway serves", served, logs())
        got = eventually(lambda: redis(second, "get", "greeting") == "hello")
        check("the other has the same", got, logs())
        metrics = f"{pods['controller', 0].address}:9464"
        status = lambda: subprocess.run(
            [PROGRAM, "ctl", "status", "--metrics", metrics], capture_output=True, text=True
        ).stdout
        check("every node is up",
              eventually(lambda: status().count(" up ") >= parts()["node"]["replicas"]), status())
        check("a switch is a spare", eventually(lambda: "spare" in status()), status())
        told = lambda: sample(metrics)
        is_known = lambda its: its["reads_per_s"] is not None and its["nodes"] and all(
            part["reads_per_s"] is not None for part in its["nodes"])
        check("the controller's console shows gateways and nodes, wherever they are",
              eventually(lambda: is_known(told())), told())
        moved = pods["node", 0].address
        check("nodes are where their pods are",
              moved in open(pods["node", 0].directory / "run.d/rack.toml").read())
    finally:
        for pod in pods.values():
            pod.process.kill()
        for pod in pods.values():
            pod.process.wait()


documents = list(yaml.safe_load_all(Path(MANIFESTS).read_text()))
check_form(documents)
(files,) = [it["data"] for it in documents if it["kind"] == "ConfigMap"]
with tempfile.TemporaryDirectory() as directory:
    directory = Path(directory)
    (directory / "secret").mkdir()
    (directory / "secret/password").write_text("secret")
    (directory / "rack.toml").write_text(files["rack.toml"])
    checked = subprocess.run([PROGRAM, "config", "check", directory / "rack.toml"],
                             capture_output=True, text=True)
    check("config check accepts rack.toml", checked.returncode == 0, checked)
    replicas = {part: spec["replicas"] for part, spec in parts().items()}
    listed = f"{replicas['switch']} switches, {replicas['node']} nodes"
    check("it lists as many parts as there are pods", listed in checked.stdout, checked)
    shutil.rmtree(directory / "secret")
    check_rack(files, directory)
finish()
