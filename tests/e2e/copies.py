"""A rack of processes with spines and leaves (scheme distcache): clients read what they wrote while
a spine and then a leaf are killed, and spines answer reads. Run by copies.sh.
"""

import re
import tomllib
import urllib.request

from checks import eventually
from rack import Shape, Writers, running


def check(what, is_right, found):
    if not is_right:
        raise SystemExit(f"FAILED: {what}: {found}")
    print(f"ok: {what}")


def spines(rack):
    """Where the switches of layer 1 tell their metrics."""
    with open(rack.config, "rb") as file:
        switches = tomllib.load(file)["switch"]
    return [switch["metrics"] for switch in switches if switch["layer"] == 1]


def answered(address):
    """Reads that a switch has answered from its copies."""
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    found = re.findall(r'^switchback_switch_answers_total\{[^}]*verb="read",by="switch"\} (\d+)',
                       text, re.MULTILINE)
    return sum(map(int, found))


def run(rack):
    writers = Writers(rack.resp)
    go_on = lambda what, count: check(what, writers.go_on(count), writers.count)
    try:
        go_on("clients write", 600)
        check("spines answer reads",
              eventually(lambda: all(answered(address) > 0 for address in spines(rack))),
              [answered(address) for address in spines(rack)])
        rack.kill("switch 0")
        go_on("clients write on without a spine", 250)
        rack.start("switch 0")
        rack.parts["switch 0"].wait_ready()
        go_on("and with it again", 250)
        rack.kill("switch 3")
        rack.start("switch 3")
        rack.parts["switch 3"].wait_ready()
        go_on("and when a leaf was killed and is back", 250)
        rack.kill("node 1")
        rack.start("node 1")
        rack.parts["node 1"].wait_ready()
        go_on("and when a node was", 250)
    finally:
        writers.stop()
    failures = writers.failures + writers.check(rack.resp)
    check("every read had what was written, and nothing is lost", not failures, failures[:5])
    print(f"{writers.count} writes, {writers.errors} without an answer, the longest took {writers.longest_s:.2f} s")


if __name__ == "__main__":
    with running(shape=Shape(scheme="distcache", layers=2, chains=2, spares=0)) as its_rack:
        run(its_rack)
