"""Racks of real processes for end-to-end tests, and a Redis client of thirty lines that tells every
outcome apart."""

import collections
import contextlib
import dataclasses
import errno
import glob
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from checks import PATIENCE_S, PROGRAM, eventually

SWITCHBACK = os.environ.get(
    "SWITCHBACK", os.path.join(os.path.dirname(__file__), "../../target/release/switchback"))


class Failed(Exception):
    """An answer that is an error."""


class Client:
    """One connection, one command at a time."""

    def __init__(self, address, timeout_s=PATIENCE_S):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.file = self.socket.makefile("rb")

    def run(self, *arguments):
        parts = [a if isinstance(a, bytes) else str(a).encode() for a in arguments]
        self.socket.sendall(
            b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.answer()

    def insist(self, *arguments):
        """Runs a command that may run again: a busy machine may let it wait for too long."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.run(*arguments)
            except Failed:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def pipeline(self, commands):
        """Runs many commands; an answer that is an error comes back as one."""
        for at in range(0, len(commands), 100):
            batch = commands[at:at + 100]
            self.socket.sendall(b"".join(
                b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in c)
                for c in batch))
            for _ in batch:
                try:
                    yield self.answer()
                except Failed as error:
                    yield error

    def answer(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Failed(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        raise ConnectionError(f"not RESP2: {line!r}")

    def keys(self):
        """All of them."""
        cursor, keys = b"0", set()
        while True:
            cursor, found = self.insist("SCAN", cursor, "COUNT", 1000)
            keys.update(found)
            if cursor == b"0":
                return keys

    def close(self):
        self.socket.close()


def kill_midway(seen, undo, *arguments, cwd=None):
    """Runs a command, and kills it once a file of this pattern is there. One that ended before it
    was killed is undone by `undo`, and run once more.
    """
    for _ in range(10):
        process = subprocess.Popen(
            [PROGRAM, *arguments], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not glob.glob(seen):
            time.sleep(0.0005)
        process.kill()
        if process.wait() != 0 and glob.glob(seen):
            return True
        undo()
    return False


def free_addresses(count):
    """Free addresses, on a loopback address of our own: a socket that takes any free port would
    otherwise get one first."""
    host = f"127.{random.randrange(64, 128)}.{random.randrange(256)}.{random.randrange(256)}"
    while True:
        first = random.randrange(10_000, 32_000)
        addresses = [(host, port) for port in range(first, first + count)]
        if all(is_free(address) for address in addresses):
            return [f"{host}:{port}" for host, port in addresses]


def is_free(address):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as s:
            try:
                s.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                return False
    return True


class Process:
    """A process that says on stdout when it is ready."""

    def __init__(self, name, *arguments, log, before=(), program=SWITCHBACK):
        self.name, self.log = name, log
        self.process = subprocess.Popen(
            [*before, program, *arguments], stdout=subprocess.PIPE, stderr=open(log, "ab"),
            text=True, stdin=subprocess.DEVNULL)
        self.ready = None

    def wait_ready(self):
        timer = threading.Timer(PATIENCE_S, self.process.kill)
        timer.start()
        self.ready = self.process.stdout.readline().strip()
        timer.cancel()
        if not self.ready.startswith("ready"):
            raise SystemExit(
                f"{self.name} doesn't start: {self.ready!r}\n{open(self.log).read()[-4000:]}")
        return dict(re.findall(r"(\w+)=(\S+)", self.ready))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, limit_s=PATIENCE_S):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=limit_s)


@dataclasses.dataclass(frozen=True)
class Shape:
    """How many switches and nodes a rack has. each layer has `spares` spare switches; a layer is
    a failure domain."""

    scheme: str = "farreach"
    layers: int = 1
    chains: int = 1
    spares: int = 1
    nodes: int = 2
    replication: int = 1

    def switch_names(self):
        return [f"switch {index}" for index in range(self.layers * (self.chains + self.spares))]

    def node_names(self):
        return [f"node {index}" for index in range(self.nodes)]

    def layer(self, switch):
        """A switch's layer; `None`: this is another part."""
        kind, _, index = switch.partition(" ")
        return int(index) % self.layers + 1 if kind == "switch" else None

    def tables(self, address, metrics=None):
        """The end of rack.toml. Both arguments have an address for the name of each switch and
        node."""
        told = (lambda name: f'metrics = "{metrics[name]}"\n') if metrics else lambda name: ""
        text = f"[topology]\nlayers = {self.layers}\nchains = {self.chains}\n"
        for name in self.switch_names():
            layer = self.layer(name)
            text += f'[[switch]]\naddress = "{address[name]}"\n{told(name)}layer = {layer}\ndomain = "layer-{layer}"\n'
        for name in self.node_names():
            sync = "always" if self.replication > 1 else "none"
            text += f'[[node]]\naddress = "{address[name]}"\n{told(name)}sync = "{sync}"\n'
        return text


class Rack:
    """One process a part: a controller, two switches of which one is a spare, two nodes, a gateway;
    or of another shape.

    Each tells what it knows over HTTP. `more` is the end of rack.toml, `rack`, `cache` and
    `gateway` those of its tables of these names. `program` is what parts are started with from then
    on.
    """

    def __init__(
        self, directory, more="", gateway="", shape=Shape(), rack="", cache="", switch_timeout_ms=400,
        snapshot_period_ms=1000, program=SWITCHBACK,
    ):
        self.directory, self.shape, self.program = directory, shape, program
        self.config = os.path.join(directory, "rack.toml")
        parts = shape.switch_names() + shape.node_names()
        self.resp, self.metrics, controller, told, *others = free_addresses(4 + 2 * len(parts))
        with open(self.config, "w") as file:
            file.write(f"""
[rack]
scheme = "{shape.scheme}"
replication = {shape.replication}
metrics = "{self.metrics}"
switch_timeout_ms = {switch_timeout_ms}
snapshot_period_ms = {snapshot_period_ms}
{rack}[cache]
records = 16384
threshold = 4
sampling = 1.0
{cache}[controller]
listen = "{controller}"
[gateway]
resp = "{self.resp}"
metrics = "{told}"
workers = 1
{gateway}{shape.tables(dict(zip(parts, others)), dict(zip(parts, others[len(parts):])))}{more}""")
        self.parts = {}
        names = ["controller", *shape.node_names(), *shape.switch_names(), "gateway"]
        for name in names:
            self.start(name)
        for name in names:
            self.parts[name].wait_ready()

    def start(self, name):
        part, _, index = name.partition(" ")
        log = os.path.join(self.directory, name.replace(" ", "-") + ".log")
        arguments = [part, "--config", self.config] + (["--index", index] if index else [])
        self.parts[name] = Process(name, *arguments, log=log, program=self.program)

    def kill(self, name):
        self.parts[name].kill()

    def close(self):
        for part in self.parts.values():
            part.process.kill()
            part.process.wait()

    def logs(self):
        for name, part in self.parts.items():
            print(f"--- {name}\n{open(part.log).read()[-2000:]}", file=sys.stderr)


class Writers:
    """Connections that write rising versions, and know of each key what was acknowledged and what
    was tried."""

    KEYS = 60
    WHY_MAX = 20

    def __init__(self, address, connections=4):
        self.address, self.stopping, self.began = address, threading.Event(), time.monotonic()
        self.acknowledged, self.tried, self.failures = {}, {}, []
        self.count, self.errors, self.longest_s = 0, 0, 0.0
        self.why = collections.deque(maxlen=self.WHY_MAX)  # when and why writes failed last
        self.threads = [threading.Thread(target=self.write, args=(i,), daemon=True)
                        for i in range(connections)]
        for thread in self.threads:
            thread.start()

    def write(self, writer):
        version, client = 0, None
        while not self.stopping.is_set():
            version += 1
            key = f"w{writer}:{version % self.KEYS if version % 2 else 0}"
            self.tried[key] = version
            began = time.monotonic()
            try:
                client = client or Client(self.address)
                if client.run("SET", key, f"{version}:" + "x" * 60) == "OK":
                    self.acknowledged[key] = version
                    self.count += 1
                got = client.run("GET", key)
                if got is None or int(got.split(b":")[0]) < self.acknowledged.get(key, 0):
                    self.failures.append(
                        f"{key}: acknowledged {self.acknowledged.get(key)}, read {got!r} at once")
            except Failed as error:
                # Indeterminate, or not now: the version may or may not be there.
                self.failed(key, began, error)
            except OSError as error:
                self.failed(key, began, error)
                client = None
                time.sleep(0.02)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def failed(self, key, began, error):
        self.errors += 1
        now = time.monotonic()
        self.why.append(f"at {now - self.began:.2f} s, after {now - began:.2f} s: {key}: {error!r}")

    def go_on(self, count=100):
        """Whether this many more are written before long."""
        before = self.count
        return eventually(lambda: self.count >= before + count)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def check(self, address, limit_s=PATIENCE_S):
        """Every key has what was acknowledged last, or a later try."""
        client, until = Client(address), time.monotonic() + limit_s
        for key, version in sorted(self.acknowledged.items()):
            got = None
            while True:
                try:
                    got = client.run("GET", key)
                    break
                except Failed as error:
                    if time.monotonic() > until:
                        self.failures.append(f"{key}: {error}")
                        break
                    time.sleep(0.05)
            found = int(got.split(b":")[0]) if got else None
            if found is None or not version <= found <= self.tried[key]:
                self.failures.append(
                    f"{key}: acknowledged {version}, tried {self.tried[key]}, found {found}")
        client.close()
        return self.failures


def temporary():
    return tempfile.TemporaryDirectory(prefix="switchback-e2e-")


@contextlib.contextmanager
def running(**how):
    """A rack in a directory of its own, which ends with the block; its logs are shown if that
    fails."""
    with temporary() as directory:
        rack = Rack(directory, **how)
        try:
            yield rack
        except BaseException:
            rack.logs()
            raise
        finally:
            rack.close()
