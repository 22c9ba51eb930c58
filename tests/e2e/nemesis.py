"""A rack of real processes, each in a network namespace, under faults and load; its clients'
histories are checked for linearizability.

Safety is asserted always; that the rack serves, only once everything has been healed, with plenty
of time. The argument is the rack's shape, one of SHAPES. Run by nemesis.sh.
"""

import collections
import ctypes
import http.client
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from rack import SWITCHBACK, Client, Failed, Process, Shape

SHAPES = {
    "farreach": Shape("farreach", nodes=3),
    "distreach": Shape("distreach", layers=2, chains=2, spares=1, nodes=3),
    "replicas": Shape("farreach", nodes=4, replication=3),
}
SECONDS = float(os.environ.get("NEMESIS_SECONDS", "30"))
# A run of this length has had each kind of fault in each kind of part several times.
LONG_S = 300
SEED = int(os.environ.get("NEMESIS_SEED", random.randrange(1_000_000)))
CHECKER = os.environ.get("SWITCHBACK_SIM",
                         os.path.join(os.path.dirname(SWITCHBACK), "switchback-sim"))
HEAL_LIMIT_S = 120
CLONE_NEWNET = 0x40000000

RESP = "127.0.0.1:6380"
METRICS = "127.0.0.1:9464"
GATEWAYS = ["gateway 0", "gateway 1"]
SWITCH_ROLES = ["owner", "keeper", "spare"]
# In the controller's log, if it gave up what all switches of a chain had.
LOSS = "no switch that had them came back"


def addresses(shape):
    """The last byte of each part's address."""
    switches, nodes = enumerate(shape.switch_names(), 20), enumerate(shape.node_names(), 30)
    numbered = [*switches, *nodes, *enumerate(GATEWAYS, 40)]
    return {"controller": 10} | {name: number for number, name in numbered}


def kind_of(name):
    return name.split()[0]


def do_talk(shape, name, other):
    """All parts talk to the switches and to the controller, switches to those of the layers beside
    theirs, and nodes to each other if they are replicas."""
    kinds = {kind_of(name), kind_of(other)}
    if kinds == {"switch"}:
        return abs(shape.layer(name) - shape.layer(other)) == 1
    if kinds == {"node"}:
        return shape.replication > 1
    return len(kinds) == 2 and bool(kinds & {"controller", "switch"})


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def mac(number):
    return f"02:00:00:00:00:{number:02x}"


class Network:
    """A bridge; a namespace with one cable to it for each part."""

    HUB = "hub"
    NOWHERE = "02:00:00:00:00:ff"

    def __init__(self, numbers):
        self.numbers = numbers
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        run("ip", "netns", "add", self.HUB)
        run("ip", "-n", self.HUB, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.HUB, "link", "set", "bridge", "up")
        for name, number in numbers.items():
            space = self.space(name)
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "link", "add", "eth0", "address", mac(number), "type", "veth",
                "peer", "name", space, "netns", self.HUB)
            run("ip", "-n", self.HUB, "link", "set", space, "master", "bridge", "up")
            run("ip", "-n", space, "address", "add", f"10.0.0.{number}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
        for name in numbers:
            for other in numbers:
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

    def inside(self, name, call):
        """What `call` returns in a part's namespace."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self.enter, name).result()
            return thread.submit(call).result()

    def plug(self, name, is_in):
        """Pulls a part's cable, at the bridge, or puts it back."""
        run("ip", "-n", self.HUB, "link", "set", self.space(name), "up" if is_in else "down")

    def reach(self, name, other, does=True):
        """Whether what one part sends reaches the other; if not, it vanishes on the way."""
        number = self.numbers[other]
        run("ip", "-n", self.space(name), "neighbour", "replace", f"10.0.0.{number}", "dev", "eth0",
            "nud", "permanent", "lladdr", mac(number) if does else self.NOWHERE)


class Rack:
    """A process a part."""

    def __init__(self, directory, network, shape):
        self.directory, self.network = directory, network
        self.config = os.path.join(directory, "rack.toml")
        address = {name: f"10.0.0.{number}:7000" for name, number in network.numbers.items()}
        with open(self.config, "w") as file:
            file.write(f"""
[rack]
scheme = "{shape.scheme}"
replication = {shape.replication}
data = "{directory}"
metrics = "{METRICS}"
switch_timeout_ms = 400
lease_ms = 2000
snapshot_period_ms = 1000
[cache]
records = 64
threshold = 4
sampling = 1.0
ageing_period_ms = 500
dirty_max_ms = 3000
[controller]
listen = "{address['controller']}"
[gateway]
workers = 1
wait_ms = 2000
[client]
deadline_ms = 1500
{shape.tables(address)}""")
        self.parts, self.wanted, self.ended = {}, set(), []
        for name in network.numbers:
            self.start(name)
        for name in network.numbers:
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

    def lose(self, name):
        """A node is killed, and its disk is gone."""
        self.kill(name)
        shutil.rmtree(os.path.join(self.directory, name.replace(" ", "-")))

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

    def told(self, path):
        """What the controller tells over HTTP; `None`: it doesn't answer."""
        def get():
            with urllib.request.urlopen(f"http://{METRICS}{path}", timeout=1) as answer:
                return json.load(answer)
        try:
            return self.network.inside("controller", get)
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def left_out(self):
        """Why chains go on without switches that live, by the switch."""
        return {f"switch {its['index']}": its["error"] for its in self.told("/switches") or []
                if its["error"]}

    def add_switches(self):
        """An operator has switches tried again that were left out."""
        for name in self.left_out():
            run("ip", "netns", "exec", self.network.space("controller"), SWITCHBACK, "ctl",
                "--metrics", METRICS, "switches", "add", name.split()[1])

    def role(self, name):
        """What a part is at the moment: of a switch, what it does in its chain, as far as the
        controller tells."""
        chains = self.chains_of_names() if kind_of(name) == "switch" else []
        if not chains:
            return kind_of(name)
        its = next((its for its in chains if name in its), [])
        return "spare" if not its else "owner" if its[-1] == name else "keeper"

    def chains_of_names(self):
        """The switches of each chain, in the order in which requests pass them; none if the
        controller is silent."""
        return [[f"switch {index}" for index in its["switches"]]
                for its in self.told("/chains") or []]


class Copies:
    """Which switches may be killed, so that a copy is left of all that clients were told.

    Where switches protect it, each layer has a copy. So only switches of one layer are killed until
    the controller says that all chains are recovered, and that none counts on a switch in the life
    that was ended. A switch that is paused or cut off still has its copy. In a rack of one layer
    clients have copies. A node loses its disk only if all replicas of its partitions are there.
    """

    # By then the controller has noticed that a node is gone.
    NOTICED_S = 5

    def __init__(self, rack, shape):
        self.rack, self.shape, self.layer = rack, shape, None
        self.killed, self.lost_at = {}, -self.NOTICED_S

    def may_kill(self, name):
        layer = self.shape.layer(name)
        if layer is None or self.shape.layers == 1 or layer == self.layer:
            return True
        if not self.are_whole():
            return False
        self.layer, self.killed = layer, {}
        return True

    def may_lose(self):
        status = self.rack.told("/status")
        is_whole = bool(status) and status["replication"]["lacking"] == 0
        if not is_whole or time.monotonic() < self.lost_at + self.NOTICED_S:
            return False
        self.lost_at = time.monotonic()
        return True

    def was_killed(self, name):
        if self.shape.layer(name) and self.shape.layers > 1:
            self.killed[name] = self.epochs(name, self.rack.told("/chains"))

    @staticmethod
    def epochs(name, chains):
        """The epoch of each chain of which a switch counts as a member; `None`: it isn't told."""
        index = int(name.split()[1])
        return chains and {its["chain"]: its["epoch"] for its in chains if index in its["switches"]}

    def are_whole(self):
        chains = self.rack.told("/chains")
        if not chains or any(its["phase"] != "serving" for its in chains):
            return False
        # A switch is a member in the life after its death only of epochs that began after it.
        for name, then in self.killed.items():
            now = self.epochs(name, chains)
            if then is None:
                self.killed[name] = then = now
            if any(epoch <= then.get(chain, 0) for chain, epoch in now.items()):
                return False
        return True


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
    """Some keys at a time, which all clients use; each is retired after COMMANDS commands, and
    looked at again later.

    That is long enough to be cached, and the cache forgets soon how hot a retired one was: so those
    in use are cached.
    """

    COMMANDS, ACTIVE = 240, 12

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
        if choice < 0.95:
            return ["INCRBY", key, str(random.randrange(1, 4))]
        return ["SET", key, str(random.randrange(10**6))]
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
            value = f"{self.number}.{written}"
            self.ask(["GET", key] if is_old else command(self.random, key, value))
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
            self.history.add(client=self.number, type="unknown" if is_unknown else "fail",
                             error=str(error))
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

    def __init__(self, rack, network, shape):
        self.rack, self.network, self.shape = rack, network, shape
        self.random, self.copies = random.Random(SEED), Copies(rack, shape)
        self.log, self.began = [], time.monotonic()
        self.counts, self.deck = collections.Counter(), []
        self.recoveries, self.dirty = {}, []

    def note(self, text):
        self.log.append(f"{time.monotonic() - self.began:8.3f} s  {text}")

    def kinds(self):
        """Every kind of fault in every kind of part, the frequent ones more than once: a switch is
        what serves."""
        faults = ["kill", "kill", "pause", "unplug", "one way", "both ways", "flicker"]
        parts = ["controller", "node", "gateway", "switch", "switch", "switch"]
        between = []
        if self.shape.layers > 1:
            between = ["one way between switches", "both ways between switches"]
        losses = [("lose", "node")] * 4 if self.shape.replication > 1 else []
        return losses + [(fault, part) for fault in faults for part in parts] + [
            (fault, "switch") for fault in between]

    def draw(self, but=None):
        """A fault that may happen now, and its part: the next of a deck of all kinds, so that a
        long run has each."""
        while True:
            for at, (kind, part) in enumerate(self.deck):
                names = [name for name in self.able(kind, part) if name != but]
                victim = self.random.choice(names) if names else None
                may = {"kill": lambda: self.copies.may_kill(victim), "lose": self.copies.may_lose}
                if victim and may.get(kind, lambda: True)():
                    del self.deck[at]
                    return kind, victim
            self.deck += self.random.sample(self.kinds(), len(self.kinds()))

    def able(self, kind, part):
        """The parts that a kind of fault may hit. A cut between switches is one in a chain, if
        there is a long one."""
        names = [name for name in self.network.numbers if kind_of(name) == part]
        chains = []
        if "between switches" in kind:
            chains = [its for its in self.rack.chains_of_names() if len(its) > 1]
        return [name for its in chains for name in its] or names

    def other(self, kind, name):
        """Another part, for a fault between two."""
        others = [other for other in self.network.numbers if do_talk(self.shape, name, other)]
        if "between switches" in kind:
            others = [other for other in others if kind_of(other) == "switch"]
            near = next((its for its in self.rack.chains_of_names() if name in its), [])
            others = [other for other in others if other in near] or others
        return self.random.choice(others)

    def fault(self, kind, name):
        """Begins a fault of a part, and returns what ends it."""
        role = self.rack.role(name)
        other = self.other(kind, name) if "way" in kind else None
        self.counts[kind, role] += 1
        self.note(f"{kind}: {name} ({role})" + (f", {other}" if other else ""))
        if kind == "kill":
            self.rack.kill(name)
            self.copies.was_killed(name)
            return lambda: self.rack.start(name)
        if kind == "lose":
            self.rack.lose(name)
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
        pairs = [(name, other)] + ([(other, name)] if kind.startswith("both ways") else [])
        for a, b in pairs:
            self.network.reach(a, b, False)
        return lambda: [self.network.reach(a, b) for a, b in pairs]

    def torment(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            kind, first = self.draw()
            ends = [self.fault(kind, first)]
            if self.random.random() < 0.3:
                time.sleep(self.random.uniform(0, 0.5))
                ends.append(self.fault(*self.draw(but=first)))
            time.sleep(self.random.choice([0.05, 0.3, 0.6, 1.2, 3]))
            self.random.shuffle(ends)
            for end in ends:
                end()
                time.sleep(self.random.choice([0, 0.2]))
            self.note("healed")
            time.sleep(self.random.choice([0.2, 0.5, 1, 2]))
            self.look()
        for name in self.network.numbers:
            self.rack.watch(name)

    def look(self):
        """Remembers what the controller tells: the last recovery, and how many records only
        switches have."""
        status = self.rack.told("/status")
        if status and status["recovery"]:
            self.recoveries[status["recovery"]["epoch"]] = status["recovery"]
        cached = self.rack.told("/cached?limit=1000")
        if cached:
            self.dirty.append(sum(bool(its["dirty"]) for its in cached["records"]))

    def lacks(self):
        """What a long run must have had, and this one didn't."""
        had = {(kind, "switch" if role in SWITCH_ROLES else role) for kind, role in self.counts}
        wanted = {("kill", role) for role in SWITCH_ROLES
                  if role != "keeper" or self.shape.layers > 1}
        lacking = sorted(set(self.kinds()) - had) + sorted(wanted - set(self.counts))
        lacking = [f"{kind} of a {part}" for kind, part in lacking]
        source = "loaded" if self.shape.layers > 1 else "gathered"
        if not any(its["records"] and its[source] for its in self.recoveries.values()):
            lacking.append(f"a recovery that stored what it {source}")
        return lacking


def read_back(loads, keys):
    """Once all is healed every key answers, through every gateway. Returns failures, which keys
    have values, and how long it took."""
    until, failures, found = time.monotonic() + HEAL_LIMIT_S, [], []
    began = time.monotonic()

    def read(load):
        load.network.enter(f"gateway {load.number % 2}")
        for key in keys.all():
            reply, answered = load.ask(["GET", key])
            while not answered:
                if time.monotonic() > until:
                    failures.append(
                        f"{key} doesn't answer {HEAL_LIMIT_S} s after the last fault was healed")
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
            file.write(json.dumps({"client": 99, "type": "invoke", "command": ["GET", lie[0]]})
                       + "\n")
            file.write(json.dumps({"client": 99, "type": "ok", "reply": lie[1]}) + "\n")
    return subprocess.run([CHECKER, "--check-history", path], capture_output=True, text=True)


def judge(checked, found, path):
    """What the checker's verdict lacks to be one."""
    if checked.returncode != 0:
        return [checked.stdout + checked.stderr]
    failures = []
    numbers = re.search(r"on (\d+) keys: .* (\d+) keys undecided", checked.stdout)
    keys, undecided = map(int, numbers.groups())
    if undecided > keys / 10:
        failures.append(f"{undecided} of {keys} keys were not decided: that proves little")
    if not found:
        failures.append("no key has a value at last: nothing could be lost")
    elif check(path, (found[0], "this was never written")).returncode != 1:
        failures.append("the checker accepts a value that was never written")
    elif check(path, (found[0], None)).returncode != 1:
        failures.append("the checker accepts the loss of a value")
    return failures


def goes_on(loads, seconds):
    """Whether commands are answered for these seconds, and none fails."""
    count = lambda: (sum(load.failed + load.unknown for load in loads),
                     sum(load.answered for load in loads))
    before = count()
    time.sleep(seconds)
    after = count()
    return after[0] == before[0] and after[1] > before[1]


def not_routed_around(rack, network, shape, loads):
    """One direction between two neighbours dies, for good. What is wrong with what their chain
    makes of it."""
    if shape.layers == 1:
        return []
    keeper, owner = rack.chains_of_names()[0][-2:]
    network.reach(keeper, owner, False)
    until, told = time.monotonic() + HEAL_LIMIT_S, f"nothing gets from {keeper} to {owner}"
    while not (any(told in reason for reason in rack.left_out().values()) and goes_on(loads, 2)):
        if time.monotonic() > until:
            return [f"{keeper} doesn't reach {owner}: clients wait, and the controller says {rack.left_out()}"]
    network.reach(keeper, owner)
    return unhealed(rack, shape)


def unhealed(rack, shape):
    """Waits until each chain is as long as it can be, and protected as it was meant. What is wrong
    with it at last."""
    def is_right(its):
        protects = shape.layers > 1 and not its["preserved"] and its["domains"] == shape.layers
        is_whole = its["phase"] == "serving" and len(its["switches"]) == shape.layers
        return is_whole and (protects or shape.layers == 1)

    until = time.monotonic() + HEAL_LIMIT_S
    while not (chains := rack.told("/chains")) or not all(map(is_right, chains)):
        if time.monotonic() > until:
            return [f"after {HEAL_LIMIT_S} s without faults the chains are {json.dumps(chains)}"]
        rack.add_switches()
        time.sleep(0.1)
    while not (status := rack.told("/status")) or status["replication"]["lacking"]:
        if time.monotonic() > until:
            return [f"after {HEAL_LIMIT_S} s without faults there are too few replicas: {status}"]
        time.sleep(0.1)
    return []


def losses(directory):
    """The nemesis leaves a copy of everything, so the controller gives nothing up."""
    with open(os.path.join(directory, "controller.log")) as file:
        return [f"the controller declared a loss: {line.strip()}" for line in file if LOSS in line]


def main():
    name = sys.argv[1]
    shape = SHAPES[name]
    directory = tempfile.mkdtemp(prefix="switchback-nemesis-")
    network = Network(addresses(shape))
    rack = Rack(directory, network, shape)
    path = os.path.join(directory, "history.jsonl")
    history, keys = History(path), Keys()
    loads = [Load(number, network, history, keys) for number in range(8)]
    nemesis = Nemesis(rack, network, shape)
    try:
        time.sleep(2)
        failures = not_routed_around(rack, network, shape, loads)
        nemesis.torment(SECONDS)
        for load in loads:
            load.stop()
        unread, found, healed_s = read_back(loads, keys)
        failures += unread + unhealed(rack, shape)
        nemesis.look()
    finally:
        rack.close()
        history.close()
    failures += rack.ended + losses(directory)
    checked = check(path)
    failures += judge(checked, found, path)
    answered, unknown, failed = (sum(getattr(load, its) for load in loads)
                                 for its in ["answered", "unknown", "failed"])
    faults = ", ".join(
        f"{count} {kind} ({role})" for (kind, role), count in sorted(nemesis.counts.items()))
    known = nemesis.recoveries.values()
    print(f"{name}, seed {SEED}: {answered} commands answered, {unknown} unknown, {failed} refused")
    print(f"faults: {faults}")
    print(f"{len(known)} recoveries were seen, which stored {sum(its['records'] for its in known)} records; at a look "
          f"{statistics.median(nemesis.dirty or [0]):.0f} records were in the cache alone (median)")
    print(f"all keys read {healed_s:.1f} s after the last fault; {(checked.stdout.splitlines() or ['no verdict'])[-1]}")
    if answered < 100:
        failures.append(f"only {answered} commands were answered: that proves nothing")
    if not any(nemesis.dirty):
        failures.append("the cache never had what no node had: nothing could be lost")
    if SECONDS >= LONG_S:
        failures += [f"there was no {what}" for what in nemesis.lacks()]
    for failure in failures:
        print(f"FAILED: {failure}")
    if failures:
        with open(os.path.join(directory, "nemesis.log"), "w") as file:
            file.write("\n".join(nemesis.log) + "\n")
        again = f"NEMESIS_SHAPES={name} NEMESIS_SEED={SEED} tests/e2e/nemesis.sh"
        print(f"history, faults and logs are in {directory}; once more: {again}")
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
