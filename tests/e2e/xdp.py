"""A rack whose switch runs in the kernel: what clients write is there, hot keys are answered by the
interface, and nothing stays behind. And a chain of two such switches."""

import ctypes
import json
import os
import socket
import statistics
import struct
import subprocess
import threading
import time
import urllib.request

import checks
from checks import PATIENCE_S
from rack import SWITCHBACK, Client, Failed, Process, temporary

SPACES = {"switch": 1, "node0": 2, "node1": 3, "front": 4, "switch1": 5}
# What of rack.toml says which switches there are.
ONE = """
[[switch]]
address = "{first}"
metrics = "10.0.7.1:9465"
"""
CHAIN = """
[topology]
layers = 2
[[switch]]
address = "{first}"
metrics = "10.0.7.1:9465"
layer = 1
domain = "keeper"
[[switch]]
address = "{second}"
metrics = "10.0.7.5:9465"
layer = 2
domain = "owner"
"""
SOL_PACKET, PACKET_AUXDATA = 263, 8
ADDRESS = {4: ("10.0.7.{}", 24), 6: ("fd00::{}", 64)}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def network():
    """A namespace a part; those of nodes and front are cabled to a bridge in the hub, and so is the
    switch."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "netns", "add", "hub")
    run("ip", "-n", "hub", "link", "add", "bridge", "type", "bridge")
    run("ip", "-n", "hub", "link", "set", "bridge", "up")
    for space, number in SPACES.items():
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", space,
            "netns", "hub")
        run("ip", "-n", "hub", "link", "set", space, "master", "bridge", "up")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "address", "add", f"10.0.7.{number}/24", "dev", "eth0")
        run("ip", "-n", space, "address", "add", f"fd00::{number}/64", "dev", "eth0", "nodad")


def url(version, number, port):
    host = ADDRESS[version][0].format(number)
    return f"[{host}]:{port}" if version == 6 else f"{host}:{port}"


class Rack:
    """A process a part, with these switches."""

    def __init__(self, directory, version, mode, scheme="farreach", switches=ONE):
        self.directory, self.mode = directory, mode
        switches = switches.format(first=url(version, 1, 5357), second=url(version, 5, 5357))
        self.config = os.path.join(directory, "rack.toml")
        with open(self.config, "w") as file:
            file.write(f"""
[rack]
scheme = "{scheme}"
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
{switches}
[[node]]
address = "{url(version, 2, 5400)}"
sync = "none"
[[node]]
address = "{url(version, 3, 5400)}"
sync = "none"
""")
        self.parts = {}
        parts = [("controller", "front"), ("node 0", "node0"), ("node 1", "node1"),
                 ("switch 0", "switch")]
        parts += [("switch 1", "switch1")] if scheme == "distreach" else []
        parts += [("gateway", "front")]
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

    def metrics(self, number=1):
        # TCP over the same interface: what isn't ours is passed to the kernel.
        url = f"http://10.0.7.{number}:9465/metrics"
        return urllib.request.urlopen(url, timeout=PATIENCE_S).read().decode()

    def told(self, path):
        with urllib.request.urlopen(f"http://10.0.7.4:9464{path}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def chain(self):
        return self.told("/chains")[0]["switches"]

    def close(self):
        for part in self.parts.values():
            if part.process.poll() is None:
                part.kill()


def total(text, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def eventually(what, condition):
    if not checks.eventually(condition):
        raise SystemExit(f"not in {PATIENCE_S} s: {what}")


def check(client, rack, sizes, owner=1):
    """Hot keys of several sizes are absorbed; everything reads as it was written."""
    values = {f"key-{size}": b"%d:" % size + b"x" * size for size in sizes}
    before = total(rack.metrics(owner), "switchback_absorbed_writes_total")
    count = [0]

    def round_trip():
        for _ in range(40):
            count[0] += 1
            for key in values:
                values[key] = b"%d:" % count[0] + values[key].split(b":", 1)[1]
                client.insist("SET", key, values[key])
                got = client.insist("GET", key)
                if got != values[key]:
                    raise SystemExit(f"{key}: {got[:40]!r} instead of {values[key][:40]!r}")
        return total(rack.metrics(owner), "switchback_absorbed_writes_total") > before + 100

    eventually("the switch absorbs writes", round_trip)
    # Larger than any slot: relayed in fragments, uncached.
    large = os.urandom(200_000)
    client.insist("SET", "large", large)
    if client.insist("GET", "large") != large:
        raise SystemExit("a large value came back changed")
    client.insist("DEL", "key-1")
    if client.insist("GET", "key-1") is not None:
        raise SystemExit("a deleted key is still there")
    return values


def enter(space):
    with open(f"/run/netns/{space}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def is_attached():
    show = ["ip", "-n", "switch", "link", "show", "eth0"]
    return "xdp" in run(*show).split("mtu")[1].split("\n")[0] or "prog/xdp" in run(*show)


def forwarding(version):
    return run("ip", "netns", "exec", "switch", "cat",
               f"/proc/sys/net/ipv{version}/conf/eth0/forwarding").strip()


def serve_echo(kind, address, port):
    """Sends back whatever comes to an address of the switch's host."""
    ready = threading.Event()

    def serve():
        enter("switch")
        with socket.socket(kind, socket.SOCK_DGRAM) as server:
            server.bind((address, port))
            ready.set()
            while True:
                data, sender = server.recvfrom(1 << 16)
                server.sendto(data, sender)

    threading.Thread(target=serve, daemon=True).start()
    if not ready.wait(30):
        raise SystemExit(f"nothing can be served at {address} port {port}")


def answered(ask, limit_s=30):
    """The first packets may be lost while neighbours are looked for."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            return ask()
        except TimeoutError:
            pass
    raise SystemExit("no answer: the datapath keeps what isn't its own")


def echo(kind, address, port, size):
    data = os.urandom(size)
    with socket.socket(kind, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.connect((address, port))

        def ask():
            client.send(data)
            return client.recv(1 << 16)

        if answered(ask) != data:
            raise SystemExit(f"{size} bytes of UDP to {address} port {port} came back changed")


def ping(kind, address):
    v6 = kind == socket.AF_INET6
    icmp, icmp_v6 = (socket.IPPROTO_ICMP, 8, 0), (socket.IPPROTO_ICMPV6, 128, 129)
    protocol, request, reply = icmp_v6 if v6 else icmp
    body = struct.pack("!HH", os.getpid() & 0xffff, 1) + b"an echo is none of the switch's business"
    words = struct.unpack(f"!{len(body) // 2}H", body)
    checksum = ~((sum(words) + (request << 8)) % 0xffff) & 0xffff
    with socket.socket(kind, socket.SOCK_RAW, protocol) as raw:
        raw.settimeout(1)

        def ask():
            raw.sendto(struct.pack("!BBH", request, 0, checksum) + body, (address, 0))
            while True:
                packet = raw.recv(1 << 16)
                packet = packet if v6 else packet[20:]
                if packet[0] == reply and packet[4:] == body:
                    return packet

        answered(ask)


def tagged():
    """A frame with a VLAN tag arrives with it, even if it is for the switch's address and port."""
    marker = os.urandom(40)
    ready, found = threading.Event(), []

    def watch():
        enter("switch")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
            # The kernel takes the tag off, and says beside the packet what it was.
            tap.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            tap.bind(("eth0", 0))
            tap.settimeout(30)
            ready.set()
            while not found:
                data, beside, _, _ = tap.recvmsg(1 << 16, 1 << 10)
                if data.endswith(marker):
                    found.extend(struct.unpack("=IIIHHHH", aux)[5] for _, kind, aux in beside
                                 if kind == PACKET_AUXDATA)

    def send():
        enter("hub")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("switch", 0))
            udp = struct.pack("!HHHH", 4000, 5357, 8 + len(marker), 0) + marker
            ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0,
                             bytes([10, 0, 7, 9]), bytes([10, 0, 7, 1]))
            wire.send(destination + bytes(6) + b"\x81\0" + struct.pack("!H", 7) + b"\x08\0" + ip
                      + udp)

    destination = bytes.fromhex(run("ip", "netns", "exec", "switch", "cat",
                                    "/sys/class/net/eth0/address").strip().replace(":", ""))
    watcher, sender = threading.Thread(target=watch), threading.Thread(target=send)
    watcher.start()
    ready.wait(30)
    sender.start()
    watcher.join()
    if found != [7]:
        raise SystemExit(f"a frame of VLAN 7 arrived with the tags {found}")


def passes():
    """With the datapath on the interface, everything else on it works as ever: the rack's control
    channel and metrics (TCP), and these."""
    v4, v6 = socket.AF_INET, socket.AF_INET6
    ping(v4, "10.0.7.1")
    ping(v6, "fd00::1")
    for kind, address in [(v4, "10.0.7.1"), (v6, "fd00::1")]:
        serve_echo(kind, address, 5358)
        # Another port; the longer ones in IP fragments.
        for size in [1, 1000, 3000, 60_000]:
            echo(kind, address, 5358, size)
    tagged()
    print("what isn't ours is passed: ICMP, UDP, IP fragments, TCP, VLAN tags")


def refuses(rack, interface, words):
    """A switch that can't be native on an interface doesn't start, and says what to do."""
    command = [SWITCHBACK, "switch", "--config", rack.config, "--datapath", "xdp",
               "--iface", interface]
    result = subprocess.run(["ip", "netns", "exec", "switch", *command], capture_output=True,
                            text=True, timeout=120)
    if result.returncode != 1 or not all(word in result.stderr for word in words):
        raise SystemExit(f"{interface}: {result.returncode} {result.stderr!r}")


def refusals(rack):
    run("ip", "-n", "switch", "link", "set", "eth0", "mtu", "1400")
    refuses(rack, "eth0", ["1400", "mtu 1500"])
    run("ip", "-n", "switch", "link", "set", "eth0", "mtu", "1500")
    run("ip", "-n", "switch", "link", "add", "slow0", "type", "bridge")
    refuses(rack, "slow0", ["slow0", "--xdp-mode generic"])
    run("ip", "-n", "switch", "link", "del", "slow0")
    refuses(rack, "none0", ["no interface none0"])


def logs(directory):
    for name in os.listdir(directory):
        if name.endswith(".log"):
            print(f"--- {name}\n" + open(os.path.join(directory, name)).read()[-3000:])


def scenario(version, mode):
    with temporary() as directory:
        rack = Rack(directory, version, mode)
        try:
            ready = rack.ready["switch 0"]
            if ready["mode"] != mode:
                raise SystemExit(f"attached as {ready['mode']}, not {mode}")
            client = Client("127.0.0.1:6380")
            # 1000 bytes need more room than a veth leaves behind a request: they come by way of the
            # process.
            values = check(client, rack, [1, 100, 200, 1000])
            text = rack.metrics()
            if f'switchback_xdp_attached{{switch="0",interface="eth0",mode="{mode}"}} 1' not in text:
                raise SystemExit("the metrics don't say the mode")
            if total(text, 'switchback_dropped_packets_total{part="switch",index="0",reason="room"}') != 0:
                raise SystemExit("what is left to the process is counted as dropped")
            print(f"IPv{version} {mode}: {total(text, 'switchback_absorbed_writes_total'):.0f} writes absorbed,"
                  f" {total(text, 'switchback_xdp_passed_total'):.0f} packets left to the process; a hit, median"
                  f" {hit_us(client, 'key-100'):.0f} us at the gateway's client")
            if (version, mode) == (4, "native"):
                passes()
            if forwarding(version) != "1":
                raise SystemExit("the interface doesn't forward")
            # kill -9 leaves nothing on the interface; the next start serves, and nothing
            # acknowledged is lost.
            rack.parts["switch 0"].kill()
            # The kernel may take a moment to release what a process had.
            eventually("the program of a killed switch is gone", lambda: not is_attached())
            rack.start("switch 0", "switch")
            rack.parts["switch 0"].wait_ready()

            def reads_back():
                try:
                    return all(client.run("GET", key) == value for key, value in values.items()
                               if key != "key-1")
                except Failed:
                    return False

            eventually("every acknowledged write is there after the switch was killed", reads_back)
            if rack.parts["switch 0"].stop() != 0:
                raise SystemExit("the switch didn't end well")
            if is_attached():
                raise SystemExit("a stopped switch left its program behind")
            if forwarding(version) != "0" or os.listdir("/run/switchback"):
                raise SystemExit("the interface still forwards, after a switch that was killed and one that was stopped")
            if version == 4:
                refusals(rack)
        except BaseException:
            logs(directory)
            raise
        finally:
            rack.close()


def hit_us(client, key):
    """How long a read of a cached key takes, from the gateway's client through the switches and
    back: the median."""
    times = []
    for _ in range(2000):
        began = time.perf_counter()
        client.run("GET", key)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def chain(version, mode):
    """Two switches in the kernel are a chain: the owner absorbs, the keeper keeps, and either may
    go."""
    with temporary() as directory:
        rack = Rack(directory, version, mode, "distreach", CHAIN)
        try:
            client = Client("127.0.0.1:6380")
            eventually("both switches serve", lambda: rack.chain() == [0, 1])
            values = check(client, rack, [1, 100, 200, 1000], owner=5)
            kept = lambda: total(rack.metrics(), "switchback_kept_records_total")
            eventually("the keeper keeps what the owner absorbs", lambda: kept() > 100)
            # They hear each other through the datapath: no switch is left out while probes arrive.
            probes = lambda number: total(rack.metrics(number), 'switchback_switch_probes_total')
            heard = {number: probes(number) for number in (1, 5)}
            eventually("each hears the other",
                       lambda: all(probes(number) > heard[number] + 100 for number in heard))
            if rack.chain() != [0, 1] or any(its["error"] for its in rack.told("/switches")):
                raise SystemExit(f"a switch was left out: {rack.told('/switches')}")
            print(f"IPv{version} {mode}: {kept():.0f} records kept; a hit through two switches, median"
                  f" {hit_us(client, 'key-100'):.0f} us at the gateway's client")
            # What the owner absorbed is nowhere but there and at the keeper.
            rack.parts["switch 1"].kill()
            eventually("the keeper serves alone", lambda: rack.chain() == [0])
            for key, value in values.items():
                if key != "key-1" and client.insist("GET", key) != value:
                    raise SystemExit(
                        f"{key} isn't what was acknowledged before its owner was killed")
            rack.start("switch 1", "switch1")
            rack.parts["switch 1"].wait_ready()
            eventually("the chain is whole again", lambda: rack.chain() == [0, 1])
            # One direction dies, of data alone: what is for the owner goes to a host that isn't
            # meant.
            nowhere, owner = "02:00:00:00:00:ff", ADDRESS[version][0].format(5)
            run("bridge", "-n", "hub", "fdb", "replace", nowhere, "dev", "front", "master",
                "static")
            run("ip", "-n", "switch", "neighbour", "replace", owner, "dev", "eth0", "nud",
                "permanent", "lladdr", nowhere)
            told = "nothing gets from switch 0 to switch 1"
            eventually("a dead link is noticed",
                       lambda: told in (rack.told("/switches")[0]["error"] or ""))
            is_there = client.insist("GET", "large") is not None
            if not is_there or client.insist("SET", "after", "all") != "OK":
                raise SystemExit("the chain doesn't go on without one end of a dead link")
        except BaseException:
            logs(directory)
            raise
        finally:
            rack.close()


def main():
    network()
    enter("front")
    for version, mode in [(4, "native"), (6, "native"), (4, "generic")]:
        scenario(version, mode)
    for version, mode in [(4, "native"), (6, "generic")]:
        chain(version, mode)


main()
