"""Racks of one process whose switch is the kernel: hot keys never reach the process, nothing
acknowledged is lost by kill -9, nothing stays behind on the machine, and two of them know nothing
of each other."""

import glob
import os
import shutil
import subprocess
import time
import urllib.request

from checks import PATIENCE_S
from rack import SWITCHBACK, Client, Process, Writers, free_addresses, temporary


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def redis(rack, *command):
    host, port = rack.resp.rsplit(":", 1)
    return run("redis-cli", "-h", host, "-p", port, *command).strip()


def expect(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"{what}: {got!r} instead of {wanted!r}")


def machine():
    """What a rack might have changed of the machine: interfaces, addresses, routes, named
    namespaces, settings."""
    settings = sorted(glob.glob("/proc/sys/net/ipv[46]/conf/*/forwarding"))
    links = "\n".join(line.split("qlen")[0] for line in run("ip", "-o", "link").splitlines())
    return [links, run("ip", "-o", "address"), run("ip", "route", "show", "table", "all"),
            run("ip", "netns"),
            run("ls", "-A", "/run"), [(name, open(name).read()) for name in settings]]


def namespaces(of):
    """Network namespaces that a process has open."""
    names = set()
    for link in glob.glob(f"/proc/{of}/fd/*") + glob.glob(f"/proc/{of}/task/*/ns/net"):
        try:
            names.add(os.readlink(link))
        except OSError:
            pass
    return {name for name in names if name.startswith("net:")} - {os.readlink("/proc/self/ns/net")}


class Rack:
    def __init__(self, directory, name, *flags):
        self.directory, self.name, self.flags = directory, name, flags
        self.resp, self.metrics = free_addresses(2)
        self.start()

    def start(self):
        self.log = os.path.join(self.directory, self.name + ".log")
        data = os.path.join(self.directory, self.name)
        self.process = Process(self.name, "up", "--datapath", "xdp", "--data", data,
                               "--resp", self.resp, "--metrics", self.metrics, "--nodes", "2",
                               "--sync", "none", *self.flags, log=self.log)
        ready = self.process.wait_ready()
        expect("the ready line", self.process.ready,
               f"ready resp={self.resp} metrics={self.metrics}")
        self.namespaces = namespaces(self.process.process.pid)
        expect("its namespaces", len(self.namespaces), 2)
        return ready

    def ended(self):
        """No process has what it made open; so the kernel has removed it."""
        expect("namespaces that are left", namespaces("[0-9]*") & self.namespaces, set())

    def samples(self):
        url = f"http://{self.metrics}/metrics"
        text = urllib.request.urlopen(url, timeout=PATIENCE_S).read().decode()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def count(self, name):
        return float(self.samples()[name])


def heat(rack, key, value, limit_s=PATIENCE_S):
    """Writes and reads a key until the kernel has answered both a hundred times; the last value is
    acknowledged."""
    client, last = Client(rack.resp), None
    writes, reads = 'switchback_absorbed_writes_total{switch="0"}', 'switchback_cache_lookups_total{switch="0",verb="read",result="hit"}'
    before, end = (rack.count(writes), rack.count(reads)), time.monotonic() + limit_s
    count = 0
    while rack.count(writes) < before[0] + 100 or rack.count(reads) < before[1] + 100:
        if time.monotonic() > end:
            raise SystemExit(f"the kernel absorbs no writes of a hot key in {limit_s} s")
        for _ in range(100):
            count, last = count + 1, f"{value}:{count}".encode()
            expect("SET", client.insist("SET", key, last), "OK")
            expect("GET", client.insist("GET", key), last)
    return last


def serves(directory, mode):
    before = machine()
    rack = Rack(directory, "serves-" + mode, *([] if mode == "native" else ["--xdp-mode", mode]))
    expect("redis-cli SET", redis(rack, "SET", "greeting", "hello"), "OK")
    expect("redis-cli GET", redis(rack, "GET", "greeting"), "hello")
    heat(rack, "hot", "v")
    expect("the mode",
           [name for name in rack.samples() if name.startswith("switchback_xdp_attached")],
           ['switchback_xdp_attached{switch="0",interface="switch",mode="%s"}' % mode])
    expect("the mode, printed", open(rack.log).read().strip(), f"datapath=xdp mode={mode}")
    passed = rack.count('switchback_xdp_passed_total{switch="0"}')
    # A read of 1000 bytes has more room in this process's memory than behind a frame of a veth;
    # 200,000 are relayed in fragments.
    client = Client(rack.resp)
    for size in [1000, 200_000]:
        value = os.urandom(size)
        for _ in range(60):
            expect("SET", client.insist("SET", f"size:{size}", value), "OK")
            expect("GET", client.insist("GET", f"size:{size}"), value)
    expect("the machine, while it runs", machine(), before)
    expect("SIGTERM", rack.process.stop(), 0)
    expect("the machine, after it ran", machine(), before)
    rack.ended()
    print(f"{mode}: hot keys absorbed; {passed:.0f} of their packets were left to the process")


def survives(directory):
    """kill -9 of a rack, of one of two, and the next start."""
    before = machine()
    one, two = Rack(directory, "one"), Rack(directory, "two")
    written = {rack: heat(rack, "hot", rack.name) for rack in [one, two]}
    taken = subprocess.run([SWITCHBACK, "up", "--datapath", "xdp",
                            "--data", os.path.join(directory, "two"), "--nodes", "2",
                            "--resp", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
                           capture_output=True, text=True)
    expect("a second rack on the same data", (taken.returncode, "two" in taken.stderr), (1, True))
    writers = {rack: Writers(rack.resp, connections=2) for rack in [one, two]}
    try:
        time.sleep(2)
        one.process.kill()
        one.ended()
        writers[one].stop()
        count = writers[two].count
        one.start()
        found = Client(one.resp).insist("GET", "hot")
        expect("what was acknowledged before kill -9", found, written[one])
        expect("what was acknowledged under load", writers[one].check(one.resp), [])
        heat(one, "hot", "one again")
        expect("the other goes on meanwhile", writers[two].count > count, True)
    finally:
        for rack in [one, two]:
            writers[rack].stop()
    expect("what the other acknowledged", writers[two].check(two.resp), [])
    expect("what the other acknowledged", Client(two.resp).insist("GET", "hot"), written[two])
    for rack in [one, two]:
        expect("SIGTERM", rack.process.stop(), 0)
        rack.ended()
    expect("the machine, after two racks and a kill -9", machine(), before)
    print(f"two at once, one killed: none of {writers[one].count} and {writers[two].count} writes lost, nothing left behind")


def refuses(directory):
    """Without the privileges it says what to do."""
    os.chmod(directory, 0o777)
    # A copy, since the user may not reach the program where it is.
    program = shutil.copy(SWITCHBACK, directory)
    up = ["up", "--datapath", "xdp", "--data", os.path.join(directory, "unprivileged"),
          "--resp", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    result = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", program, *up],
                            capture_output=True, text=True)
    expect("not as root", (result.returncode, "sudo" in result.stderr, result.stderr.count("\n")),
           (1, True, 1))


def main():
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "link", "set", "lo", "up")
    with temporary() as directory:
        try:
            refuses(directory)
            serves(directory, "native")
            serves(directory, "generic")
            survives(directory)
        except BaseException:
            for log in glob.glob(os.path.join(directory, "*.log")):
                print(f"--- {log}\n" + open(log).read()[-3000:])
            raise


main()
