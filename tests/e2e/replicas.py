"""Nodes of a rack with several replicas are killed while clients write, with all that they have
stored: nothing acknowledged is lost, and the others make the replicas that are missing by
themselves. Then the rack gets a replica more. Run by replicas.sh.
"""

import json
import os
import random
import re
import shutil
import subprocess
import threading
import time

from checks import eventually
from rack import SWITCHBACK, Client, Failed, Shape, Writers, running

NODES = 4
# Records that no cache has, with values of their own.
RECORDS = 20_000


def partitions(rack):
    command = [SWITCHBACK, "ctl", "--metrics", rack.metrics, "--json", "partitions"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else []


def check(what, is_right, found):
    if not is_right:
        raise SystemExit(f"FAILED: {what}: {found}")
    print(f"ok: {what}", flush=True)


def have_replicas(rack, count, without=None):
    """Whether each partition has as many replicas, none of them at this node."""
    found = partitions(rack)
    return bool(found) and all(
        len(it["replicas"]) == count and without not in it["replicas"] for it in found)


def until_replicated(rack, what, count, without=None):
    began = time.monotonic()
    is_whole = eventually(lambda: have_replicas(rack, count, without))
    counts = sorted(len(it["replicas"]) for it in partitions(rack))
    check(f"{what} ({time.monotonic() - began:.1f} s)", is_whole, counts)


def value(number):
    return f"{number}:".encode() + b"v" * (number % 300)


class Probe:
    """Connections that write records which no cache has, each its value again: how long the slowest
    of them took."""

    def __init__(self, address, connections=8):
        self.address, self.stopping, self.longest_s = address, threading.Event(), 0.0
        self.threads = [threading.Thread(target=self.write, args=(random.Random(i),), daemon=True)
                        for i in range(connections)]
        for thread in self.threads:
            thread.start()

    def write(self, draw):
        client = Client(self.address)
        while not self.stopping.is_set():
            number, began = draw.randrange(RECORDS), time.monotonic()
            try:
                client.run("SET", f"r{number}", value(number))
            except Failed:
                pass  # it is written again, or was
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def longest_ms(self, seconds):
        """The longest that one takes that ends within this time."""
        self.longest_s = 0.0
        time.sleep(seconds)
        return 1000 * self.longest_s

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def fill(rack):
    client = Client(rack.resp)
    written = list(client.pipeline([(b"SET", b"r%d" % n, value(n)) for n in range(RECORDS)]))
    client.close()
    check(f"{RECORDS} records are written", written == ["OK"] * RECORDS, set(written))


def check_records(rack, when):
    """All records are there: an answer that is an error is asked for again."""
    client, missing, wrong = Client(rack.resp), list(range(RECORDS)), []
    end = time.monotonic() + 60
    while missing and time.monotonic() < end:
        answers = list(client.pipeline([(b"GET", b"r%d" % n) for n in missing]))
        wrong += [n for n, it in zip(missing, answers)
                  if not isinstance(it, Exception) and it != value(n)]
        missing = [n for n, it in zip(missing, answers) if isinstance(it, Exception)]
    client.close()
    check(f"all records are there {when}", not missing and not wrong,
          f"{len(missing)} without an answer, {len(wrong)} lost or wrong: {wrong[:10]}")


def lose(rack, node):
    """A machine burns down."""
    rack.kill(f"node {node}")
    directory = node_directory(rack, node)
    check("its directory is there to be deleted", os.path.isdir(directory), directory)
    shutil.rmtree(directory)


def node_directory(rack, node):
    return os.path.join(rack.directory, "switchback-data", f"node-{node}")


def restart(rack, name):
    rack.start(name)
    rack.parts[name].wait_ready()


def set_replication(rack, count):
    with open(rack.config) as file:
        text = file.read()
    with open(rack.config, "w") as file:
        file.write(re.sub(r"(?m)^replication = .*$", f"replication = {count}", text))


def run(rack):
    check("each partition has two replicas", have_replicas(rack, 2), partitions(rack)[:3])
    fill(rack)
    writers, probe = Writers(rack.resp), Probe(rack.resp)
    write_on = lambda: check("clients write on", writers.go_on(400), writers.count)
    try:
        write_on()
        usual_ms = probe.longest_ms(3)
        lose(rack, 1)
        waited_ms = probe.longest_ms(3)
        probe.stop()
        write_on()
        check_records(rack, "without a node")
        until_replicated(rack, "the others have made what it had again", 2, without=1)
        lose(rack, 2)
        write_on()
        check_records(rack, "without two nodes, which have died in turn")
        until_replicated(rack, "and again", 2, without=2)
        for node in (1, 2):
            restart(rack, f"node {node}")
        set_replication(rack, 3)
        # The links of nodes first, then who tells them to make copies.
        for name in [*rack.shape.node_names(), "controller"]:
            rack.kill(name)
            restart(rack, name)
        until_replicated(rack, "replication is raised to three", 3)
        write_on()
        rack.kill("node 0")
        lose(rack, 3)
        write_on()
        check_records(rack, "without two nodes at once")
        restart(rack, "node 0")
        restart(rack, "node 3")
        until_replicated(rack, "a node that is back with its data, and one without, are used", 3)
    finally:
        probe.stop()
        writers.stop()
    failures = writers.check(rack.resp)
    check("no acknowledged write is lost", not failures, failures[:10])
    check_records(rack, "in the end")
    print(f"{writers.count} writes, {writers.errors} failed, the longest took "
          f"{writers.longest_s:.2f} s; writes past the cache took {usual_ms:.0f} ms at most, and "
          f"{waited_ms:.0f} ms when a node was killed")


if __name__ == "__main__":
    # Few partitions: a join of each takes its time on a slow disk.
    with running(shape=Shape(nodes=NODES, replication=2), rack="partitions = 64\n") as its_rack:
        run(its_rack)
