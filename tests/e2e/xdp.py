"""A rack whose switch runs in the kernel: what clients write is there, hot keys are answered by the interface, and nothing stays behind."""

import ctypes
import os
import subprocess
import time
import urllib.request

from rack import Client, Failed, Process, temporary

SPACES = {"switch": 1, "node0": 2, "node1": 3, "front": 4}
ADDRESS = {4: ("10.0.7.{}", 24), 6: ("fd00::{}", 64)}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def network():
    """A namespace a part; those of nodes and front are cabled to a bridge in the hub, and so is the switch."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "netns", "add", "hub")
    run("ip", "-n", "hub", "link", "add", "bridge", "type", "bridge")
    run("ip", "-n", "hub", "link", "set", "bridge", "up")
    for space, number in SPACES.items():
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", space, "netns", "hub")
        run("ip", "-n", "hub", "link", "set", space, "master", "bridge", "up")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "address", "add", f"10.0.7.{number}/24", "dev", "eth0")
        run("ip", "-n", space, "address", "add", f"fd00::{number}/64", "dev", "eth0", "nodad")


def url(version, number, port):
    host = ADDRESS[version][0].format(number)
    return f"[{host}]:{port}" if version == 6 else f"{host}:{port}"


class Rack:
    def __init__(self, directory, version, mode):
        self.directory, self.mode = directory, mode
        self.config = os.path.join(directory, "rack.toml")
        with open(self.config, "w") as file:
            file.write(f"""
[rack]
metrics = "10.0.7.4:9464"
switch_timeout_ms = 600
snapshot_period_ms = 1000
[cache]
records = 4096
threshold = 3
sampling = 1.0
[controller]
listen = "10.0.7.4:7000"
[gateway]
resp = "127.0.0.1:6380"
workers = 1
[[switch]]
address = "{url(version, 1, 5357)}"
metrics = "10.0.7.1:9465"
[[node]]
address = "{url(version, 2, 5400)}"
sync = "none"
[[node]]
address = "{url(version, 3, 5400)}"
sync = "none"
""")
        self.parts = {}
        parts = [("controller", "front"), ("node 0", "node0"), ("node 1", "node1"), ("switch 0", "switch"), ("gateway", "front")]
        for name, space in parts:
            self.start(name, space)
        self.ready = {name: self.parts[name].wait_ready() for name, _ in parts}

    def start(self, name, space):
        part, _, index = name.partition(" ")
        arguments = [part, "--config", self.config] + (["--index", index] if index else [])
        if part == "switch":
            arguments += ["--datapath", "xdp", "--iface", "eth0", "--xdp-mode", self.mode]
        log = os.path.join(self.directory, name.replace(" ", "-") + ".log")
        self.parts[name] = Process(name, *arguments, log=log, before=["ip", "netns", "exec", space])

    def metrics(self):
        # TCP over the same interface: what isn't ours is passed to the kernel.
        return urllib.request.urlopen("http://10.0.7.1:9465/metrics", timeout=10).read().decode()

    def close(self):
        for part in self.parts.values():
            if part.process.poll() is None:
                part.kill()


def total(text, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def eventually(what, condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not in {limit_s} s: {what}")
        time.sleep(0.2)


def check(client, rack, sizes):
    """Hot keys of several sizes are absorbed; everything reads as it was written."""
    values = {f"key-{size}": b"%d:" % size + b"x" * size for size in sizes}
    before = total(rack.metrics(), "switchback_absorbed_writes_total")
    count = [0]

    def round_trip():
        for _ in range(40):
            count[0] += 1
            for key in values:
                values[key] = b"%d:" % count[0] + values[key].split(b":", 1)[1]
                client.run("SET", key, values[key])
                got = client.run("GET", key)
                if got != values[key]:
                    raise SystemExit(f"{key}: {got[:40]!r} instead of {values[key][:40]!r}")
        return total(rack.metrics(), "switchback_absorbed_writes_total") > before + 100

    eventually("the switch absorbs writes", round_trip)
    # Larger than any slot: relayed in fragments, uncached.
    large = os.urandom(200_000)
    client.run("SET", "large", large)
    if client.run("GET", "large") != large:
        raise SystemExit("a large value came back changed")
    client.run("DEL", "key-1")
    if client.run("GET", "key-1") is not None:
        raise SystemExit("a deleted key is still there")
    return values


def enter(space):
    with open(f"/run/netns/{space}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def is_attached():
    return "xdp" in run("ip", "-n", "switch", "link", "show", "eth0").split("mtu")[1].split("\n")[0] or \
        "prog/xdp" in run("ip", "-n", "switch", "link", "show", "eth0")


def scenario(version, mode):
    with temporary() as directory:
        rack = Rack(directory, version, mode)
        try:
            ready = rack.ready["switch 0"]
            if ready["mode"] != mode:
                raise SystemExit(f"attached as {ready['mode']}, not {mode}")
            client = Client("127.0.0.1:6380")
            # 1000 bytes need more room than a veth leaves behind a request: they come by way of the process.
            values = check(client, rack, [1, 100, 200, 1000])
            text = rack.metrics()
            if f'mode="{mode}"' not in text:
                raise SystemExit("the metrics don't say the mode")
            print(f"IPv{version} {mode}: {total(text, 'switchback_absorbed_writes_total'):.0f} writes absorbed,"
                  f" {total(text, 'switchback_xdp_passed_total'):.0f} packets left to the process")
            # kill -9 leaves nothing on the interface; the next start serves, and nothing acknowledged is lost.
            rack.parts["switch 0"].kill()
            if is_attached():
                raise SystemExit("a killed switch left its program behind")
            rack.start("switch 0", "switch")
            rack.parts["switch 0"].wait_ready()

            def reads_back():
                try:
                    return all(client.run("GET", key) == value for key, value in values.items() if key != "key-1")
                except Failed:
                    return False

            eventually("every acknowledged write is there after the switch was killed", reads_back)
            if rack.parts["switch 0"].stop() != 0:
                raise SystemExit("the switch didn't end well")
            if is_attached():
                raise SystemExit("a stopped switch left its program behind")
        except BaseException:
            for name in os.listdir(directory):
                if name.endswith(".log"):
                    print(f"--- {name}\n" + open(os.path.join(directory, name)).read()[-3000:])
            raise
        finally:
            rack.close()


def main():
    network()
    enter("front")
    for version, mode in [(4, "native"), (6, "native"), (4, "generic")]:
        scenario(version, mode)


main()
