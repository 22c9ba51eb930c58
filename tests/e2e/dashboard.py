"""The dashboard's queries, asked of a Prometheus that scrapes all parts of a demo whose switch is
killed."""

import json
import os
import re
import signal
import subprocess
import tempfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from checks import PROGRAM, check, eventually, finish
from rack import free_addresses

DASHBOARD = Path("contrib/grafana/switchback.json")
RULES = Path("contrib/prometheus/switchback.rules.yml")
# What Grafana puts in their place.
VARIABLES = {"$__rate_interval": "5s", "$__range": "1m", "$job": "switchback", "$instance": ".*"}


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board):
    """Every query, with the place where it is."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def variables(board):
    """Variables that Prometheus is asked for: name, metric, label."""
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                         variable["query"]["query"]).groups()
            yield variable["name"], metric, label


def check_form(board):
    ids = [panel["id"] for panel in board["panels"]]
    check("panels have numbers of their own", len(ids) == len(set(ids)))
    titles = [panel["title"] for panel in panels(board)]
    check("and titles of their own", len(titles) == len(set(titles)), titles)
    cells = [
        (x, y)
        for panel in board["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    check("no panel is on another, or beyond the edge",
          len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24)
    bare = [panel["title"] for panel in panels(board)
            if not panel.get("description") or not unit(panel)]
    check("each says what it shows, and in what unit", not bare, bare)
    sources = set(re.findall(r'"uid": "(\$[^"]*)"', DASHBOARD.read_text()))
    check("all ask the Prometheus that is chosen", sources == {"${datasource}"}, sources)
    known = {"$" + variable["name"] for variable in board["templating"]["list"]} | VARIABLES.keys()
    used = {name for _, expression in queries(board) for name in re.findall(r"\$\w+", expression)}
    check("there are no other variables", used <= known, used - known)
    narrow = [title for title, expression in queries(board)
              if 'job="$job", instance=~"$instance"' not in expression]
    check("each query is of the job and the instances that are chosen", not narrow, narrow)


def unit(panel):
    return panel["fieldConfig"]["defaults"].get("unit")


class Demo:
    """A rack of processes under load, whose switch is killed again and again."""

    def __init__(self, directory):
        environment = {**os.environ, "TMPDIR": directory}
        command = [PROGRAM, "demo", "--headless", "--kills", "500"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for line in self.process.stdout:
            if "took over" in line:
                break
        (file,) = Path(directory).glob("switchback-demo-*/rack.toml")
        self.config = tomllib.loads(file.read_text())

    def metrics(self):
        """Where each of its processes is scraped."""
        parts = [self.config["rack"], self.config["gateway"], *self.config["switch"],
                 *self.config["node"]]
        return [part["metrics"] for part in parts]

    def redis(self, *command):
        host, port = self.config["gateway"]["resp"].rsplit(":", 1)
        subprocess.run(["redis-cli", "-h", host, "-p", port, *command], capture_output=True,
                       check=True)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


class Prometheus:
    """A Prometheus that scrapes these addresses each second."""

    def __init__(self, directory, addresses):
        (self.address,) = free_addresses(1)
        file = Path(directory, "prometheus.yml")
        job = {"job_name": "switchback", "static_configs": [{"targets": addresses}]}
        # JSON is YAML.
        file.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES.resolve())],
            "scrape_configs": [job],
        }))
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={directory}/prometheus",
                f"--web.listen-address={self.address}",
                "--log.level=error",
            ]
        )

    def ask(self, path, **arguments):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            # Plain text while it starts ("Service Unavailable"), JSON from then on.
            return {"result": [], "error": error.read().decode(errors="replace")}
        except OSError as error:
            return {"result": [], "error": str(error)}

    def query(self, expression):
        return self.ask("query", query=expression)

    def finds(self, expression):
        """What a query finds before long: a part that was just started has no rates yet."""
        return eventually(lambda: self.query(expression)["result"])

    def rules(self):
        """Alerts' rules, once each was evaluated."""
        def evaluated():
            groups = self.ask("rules").get("groups")
            rules = groups[0]["rules"] if groups else []
            return all(rule["health"] != "unknown" for rule in rules) and rules

        return eventually(evaluated)

    def has_scraped(self, targets, times):
        """Whether it has scraped this many targets this often."""
        found = self.query(f"count(count_over_time(up[1m]) >= {times})")["result"]
        return bool(found) and int(found[0]["value"][1]) == targets

    def stop(self):
        self.process.terminate()
        self.process.wait()


def filled(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def check_queries(board, directory):
    demo = Demo(directory)
    addresses = demo.metrics()
    prometheus = Prometheus(directory, addresses)
    try:
        demo.redis("set", "greeting", "hello")
        demo.redis("lpush", "not", "supported")

        def is_scraped():
            demo.redis("get", "greeting")
            return prometheus.has_scraped(len(addresses), 6)

        check("all parts are scraped", eventually(is_scraped))
        for title, expression in queries(board):
            found = prometheus.finds(filled(expression))
            check(f"{title}: {expression}", bool(found), prometheus.query(filled(expression)))
        for name, metric, label in variables(board):
            found = prometheus.finds(f"count by ({label}) ({filled(metric)})")
            check(f"there are values of {name}", bool(found), found)
        rules = prometheus.rules()
        check("each alert's rule is evaluated", bool(rules), prometheus.ask("rules"))
        unhealthy = [rule["name"] for rule in rules or [] if rule.get("lastError")]
        check("no alert's rule fails on a real rack", not unhealthy, unhealthy)
    finally:
        prometheus.stop()
        demo.stop()


board = json.loads(DASHBOARD.read_text())
check_form(board)
with tempfile.TemporaryDirectory() as directory:
    check_queries(board, directory)
finish()
