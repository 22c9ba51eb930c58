"""A rack of real processes, each in a network namespace, under faults and load; its clients' histories are checked for linearizability.

Safety is asserted always; that the rack serves, only once everything has been healed, with plenty of time.
Run by nemesis.sh.
"""

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from rack import SWITCHBACK, Client, Failed, Process

SECONDS = float(os.environ.get("NEMESIS_SECONDS", "30"))
SEED = int(os.environ.get("NEMESIS_SEED", random.randrange(1_000_000)))
CHECKER = os.environ.get("SWITCHBACK_SIM", os.path.join(os.path.dirname(SWITCHBACK), "switchback-sim"))
HEAL_LIMIT_S = 120
CLONE_NEWNET = 0x40000000

ADDRESSES = {"controller": 10, "switch 0": 20, "switch 1": 21, "node 0": 30, "node 1": 31, "node 2": 32,
             "gateway 0": 40, "gateway 1": 41}
RESP = "127.0.0.1:6380"


def do_talk(name, other):
    """All parts talk to the switches and to the controller."""
    kinds = {name.split()[0], other.split()[0]}
    return len(kinds) == 2 and bool(kinds & {"controller", "switch"})


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def mac(number):
    return f"02:00:00:00:00:{number:02x}"


class Network:
    """A bridge; a namespace with one cable to it for each part."""

    HUB = "hub"
    NOWHERE = "02:00:00:00:00:ff"

    def __init__(self):
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        run("ip", "netns", "add", self.HUB)
        run("ip", "-n", self.HUB, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.HUB, "link", "set", "bridge", "up")
        for name, number in ADDRESSES.items():
            space = self.space(name)
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "link", "add", "eth0", "address", mac(number), "type", "veth",
                "peer", "name", space, "netns", self.HUB)
            run("ip", "-n", self.HUB, "link", "set", space, "master", "bridge", "up")
            run("ip", "-n", space, "address", "add", f"10.0.0.{number}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
        for name in ADDRESSES:
            for other in ADDRESSES:
                if other != name:
                    self.reach(name, other)

    @staticmethod
    def space(name):
        return name.replace(" ", "")

    def enter(self, name):
        """The calling thread's sockets are that namespace's from now on."""
        with open(f"/run/netns/{self.space(name)}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def plug(self, name, is_in):
        """Pulls a part's cable, at the bridge, or puts it back."""
        run("ip", "-n", self.HUB, "link", "set", self.space(name), "up" if is_in else "down")

    def reach(self, name, other, does=True):
        """Whether what one part sends reaches the other; if not, it vanishes on the way."""
        number = ADDRESSES[other]
        run("ip", "-n", self.space(name), "neighbour", "replace", f"10.0.0.{number}", "dev", "eth0", "nud", "permanent",
            "lladdr", mac(number) if does else self.NOWHERE)


class Rack:
    """A process a part."""

    def __init__(self, directory, network):
        self.directory, self.network = directory, network
        self.config = os.path.join(directory, "rack.toml")
        address = {name: f"10.0.0.{number}" for name, number in ADDRESSES.items()}
        parts = "".join(f'[[{kind}]]\naddress = "{address[name]}:7000"\n' + ('sync = "none"\n' if kind == "node" else "")
                        for name in ADDRESSES for kind in [name.split()[0]] if kind in ("switch", "node"))
        with open(self.config, "w") as file:
            file.write(f"""
[rack]
data = "{directory}"
metrics = "127.0.0.1:9464"
switch_timeout_ms = 400
lease_ms = 2000
snapshot_period_ms = 1000
[cache]
records = 64
threshold = 4
sampling = 1.0
[controller]
listen = "{address['controller']}:9460"
[gateway]
workers = 1
wait_ms = 2000
[client]
deadline_ms = 1500
{parts}""")
        self.parts, self.paused, self.wanted, self.ended = {}, set(), set(), []
        for name in ADDRESSES:
            self.start(name)
        for name in ADDRESSES:
            self.parts[name].wait_ready()

    def start(self, name):
        kind, _, index = name.partition(" ")
        arguments = [kind, "--config", self.config]
        if kind in ("switch", "node"):
            arguments += ["--index", index]
        if kind == "gateway":
            arguments += ["--resp", RESP, "--data", os.path.join(self.directory, f"gateway{index}")]
        log = os.path.join(self.directory, name.replace(" ", "-") + ".log")
        before = ["ip", "netns", "exec", self.network.space(name)]
        self.parts[name] = Process(name, *arguments, log=log, before=before)
        self.wanted.add(name)

    def kill(self, name):
        self.wanted.discard(name)
        self.watch(name)
        self.parts[name].kill()

    def signal(self, name, number):
        self.parts[name].process.send_signal(number)

    def watch(self, name):
        """Only the nemesis ends a process."""
        code = self.parts[name].process.poll()
        if code is not None:
            self.ended.append(f"{name} ended by itself, exit code {code}")
            return True
        return False

    def close(self):
        for part in self.parts.values():
            part.process.kill()
            part.process.wait()


class History:
    """What clients asked and were told, one event a line, in the order in which it happened."""

    def __init__(self, path):
        self.file, self.lock = open(path, "w"), threading.Lock()

    def add(self, **event):
        line = json.dumps(event) + "\n"
        with self.lock:
            self.file.write(line)

    def close(self):
        self.file.close()


class Keys:
    """A few keys at a time, which all clients use; each is retired after COMMANDS commands, and looked at again later."""

    COMMANDS, ACTIVE = 120, 6

    def __init__(self):
        self.lock, self.count = threading.Lock(), 0
        self.retired = []
        self.active = [self.another(i) for i in range(self.ACTIVE)]

    def another(self, place):
        self.count += 1
        return [f"{'rcl'[place % 3]}:{self.count}", 0]

    def draw(self, random):
        with self.lock:
            if self.retired and random.random() < 0.05:
                return random.choice(self.retired), True
            place = random.randrange(self.ACTIVE)
            entry = self.active[place]
            entry[1] += 1
            if entry[1] >= self.COMMANDS:
                self.retired.append(entry[0])
                self.active[place] = self.another(place)
            return entry[0], False

    def all(self):
        return self.retired + [key for key, _ in self.active]


def command(random, key, value):
    """A command on a register, a counter or a list; `value` is like no other."""
    choice = random.random()
    if choice < 0.4:
        return ["GET", key]
    if choice < 0.43:
        return ["DEL", key]
    if key.startswith("c"):
        return ["INCRBY", key, str(random.randrange(1, 4))] if choice < 0.95 else ["SET", key, str(random.randrange(10**6))]
    if key.startswith("l"):
        return ["APPEND", key, f"{value};"] if choice < 0.95 else ["GETDEL", key]
    if choice < 0.75:
        return ["SET", key, value]
    return random.choice([["GETSET", key, value], ["SETNX", key, value], ["SET", key, value, "XX"],
                          ["SET", key, value, "NX", "GET"], ["EXISTS", key], ["STRLEN", key]])


class Load:
    """A connection to a gateway that asks, and records."""

    def __init__(self, number, network, history, keys):
        self.number, self.network, self.history, self.keys = number, network, history, keys
        self.random, self.client = random.Random(f"{SEED}/{number}"), None
        self.stopping, self.answered, self.unknown, self.failed = threading.Event(), 0, 0, 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        self.network.enter(f"gateway {self.number % 2}")
        written = 0
        while not self.stopping.is_set():
            key, is_old = self.keys.draw(self.random)
            written += 1
            self.ask(["GET", key] if is_old else command(self.random, key, f"{self.number}.{written}"))
            time.sleep(0.001)

    def ask(self, words):
        """The reply, and whether there is one."""
        try:
            self.client = self.client or Client(RESP, timeout_s=4)
        except OSError:
            time.sleep(0.05)
            return None, False
        self.history.add(client=self.number, type="invoke", command=words)
        try:
            reply = self.client.run(*words)
            reply = reply.decode() if isinstance(reply, bytes) else reply
            self.history.add(client=self.number, type="ok", reply=reply)
            self.answered += 1
            return reply, True
        except Failed as error:
            # All but these say that nothing was changed.
            is_unknown = str(error).startswith(("INDETERMINATE", "MISCONF"))
            self.history.add(client=self.number, type="unknown" if is_unknown else "fail", error=str(error))
            self.unknown += is_unknown
            self.failed += not is_unknown
        except OSError as error:
            self.history.add(client=self.number, type="unknown", error=str(error))
            self.unknown += 1
            self.client.close()
            self.client = None
        return None, False

    def stop(self):
        self.stopping.set()
        self.thread.join()


class Nemesis:
    """Does something to a part or two, waits, undoes it; again and again."""

    def __init__(self, rack, network):
        self.rack, self.network, self.random = rack, network, random.Random(SEED)
        self.log, self.began = [], time.monotonic()
        self.counts = {}

    def note(self, text):
        self.log.append(f"{time.monotonic() - self.began:8.3f} s  {text}")

    def victim(self, but=None):
        # The part that serves at the moment is a switch; these come up more often.
        names = [name for name in ADDRESSES for _ in range(2 if name.startswith("switch") else 1)]
        return self.random.choice([name for name in names if name != but])

    def fault(self, name):
        """Begins a fault of a part, and returns what ends it."""
        kind = self.random.choice(["kill", "kill", "pause", "unplug", "one way", "both ways", "flicker"])
        other = self.random.choice([other for other in ADDRESSES if do_talk(name, other)])
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.note(f"{kind}: {name}" + (f", {other}" if kind.endswith(("way", "ways")) else ""))
        if kind == "kill":
            self.rack.kill(name)
            return lambda: self.rack.start(name)
        if kind == "pause":
            self.rack.signal(name, signal.SIGSTOP)
            return lambda: self.rack.signal(name, signal.SIGCONT)
        if kind == "unplug":
            self.network.plug(name, False)
            return lambda: self.network.plug(name, True)
        if kind == "flicker":
            for _ in range(self.random.randrange(3, 20)):
                self.network.plug(name, False)
                time.sleep(self.random.uniform(0.005, 0.05))
                self.network.plug(name, True)
                time.sleep(self.random.uniform(0.005, 0.05))
            return lambda: None
        pairs = [(name, other)] + ([(other, name)] if kind == "both ways" else [])
        for a, b in pairs:
            self.network.reach(a, b, False)
        return lambda: [self.network.reach(a, b) for a, b in pairs]

    def torment(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            first = self.victim()
            ends = [self.fault(first)]
            if self.random.random() < 0.3:
                time.sleep(self.random.uniform(0, 0.5))
                ends.append(self.fault(self.victim(but=first)))
            time.sleep(self.random.choice([0.05, 0.3, 0.6, 1.2, 3]))
            self.random.shuffle(ends)
            for end in ends:
                end()
                time.sleep(self.random.choice([0, 0.2]))
            self.note("healed")
            time.sleep(self.random.choice([0.2, 0.5, 1, 2]))
        for name in ADDRESSES:
            self.rack.watch(name)


def read_back(loads, keys):
    """Once all is healed every key answers, through every gateway. Returns failures, which keys have values, and how long it took."""
    until, failures, found = time.monotonic() + HEAL_LIMIT_S, [], []
    began = time.monotonic()

    def read(load):
        load.network.enter(f"gateway {load.number % 2}")
        for key in keys.all():
            reply, answered = load.ask(["GET", key])
            while not answered:
                if time.monotonic() > until:
                    failures.append(f"{key} doesn't answer {HEAL_LIMIT_S} s after the last fault was healed")
                    return
                reply, answered = load.ask(["GET", key])
            if reply is not None:
                found.append(key)

    threads = [threading.Thread(target=read, args=(load,)) for load in loads[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures, found, time.monotonic() - began


def check(path, lie=None):
    """Asks the simulator's checker, perhaps after a last client was lied to about a key."""
    if lie:
        with open(path) as file:
            lines = file.read()
        path += ".lie"
        with open(path, "w") as file:
            file.write(lines)
            file.write(json.dumps({"client": 99, "type": "invoke", "command": ["GET", lie[0]]}) + "\n")
            file.write(json.dumps({"client": 99, "type": "ok", "reply": lie[1]}) + "\n")
    return subprocess.run([CHECKER, "--check-history", path], capture_output=True, text=True)


def main():
    directory = tempfile.mkdtemp(prefix="switchback-nemesis-")
    network = Network()
    rack = Rack(directory, network)
    path = os.path.join(directory, "history.jsonl")
    history, keys = History(path), Keys()
    loads = [Load(number, network, history, keys) for number in range(8)]
    nemesis = Nemesis(rack, network)
    try:
        time.sleep(2)
        nemesis.torment(SECONDS)
        for load in loads:
            load.stop()
        failures, found, healed_s = read_back(loads, keys)
    finally:
        rack.close()
        history.close()
    failures += rack.ended
    checked = check(path)
    if checked.returncode != 0:
        failures += [checked.stdout + checked.stderr]
    elif check(path, (found[0], "this was never written")).returncode != 1:
        failures.append("the checker accepts a value that was never written")
    elif check(path, (found[0], None)).returncode != 1:
        failures.append("the checker accepts the loss of a value")
    answered, unknown, failed = (sum(getattr(load, name) for load in loads) for name in ["answered", "unknown", "failed"])
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(nemesis.counts.items()))
    print(f"seed {SEED}: {answered} commands answered, {unknown} unknown, {failed} refused; faults: {faults}")
    print(f"all keys read {healed_s:.1f} s after the last fault; {(checked.stdout.splitlines() or ['no verdict'])[-1]}")
    if answered < 100:
        failures.append(f"only {answered} commands were answered: that proves nothing")
    for failure in failures:
        print(f"FAILED: {failure}")
    if failures:
        with open(os.path.join(directory, "nemesis.log"), "w") as file:
            file.write("\n".join(nemesis.log) + "\n")
        print(f"history, faults and logs are in {directory}; once more: NEMESIS_SEED={SEED} tests/e2e/nemesis.sh")
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
