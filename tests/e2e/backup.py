"""`switchback backup` and `restore`: a restored rack has what the rack had at one moment while it
was written to."""

import glob
import os
import shutil
import subprocess
import threading
import time

from checks import PROGRAM, check, finish
from rack import Client, Failed, Process, Rack, free_addresses, kill_midway, temporary

KEYS = 60
WRITERS = 4
VALUE = "x" * 60


def key_of(writer, version):
    """Half of the versions are of one hot key."""
    return f"w{writer}:{version % KEYS if version % 2 else 0}"


class Writer(threading.Thread):
    """Writes rising versions, one after the other, and knows which were acknowledged."""

    def __init__(self, number, address):
        super().__init__(daemon=True)
        self.number, self.address, self.stopping = number, address, threading.Event()
        self.tried, self.acknowledged = 0, []
        self.start()

    def run(self):
        client = None
        while not self.stopping.is_set():
            self.tried += 1
            try:
                client = client or Client(self.address)
                client.run("SET", key_of(self.number, self.tried), f"{self.tried}:{VALUE}")
                self.acknowledged.append(self.tried)
            except Failed:
                pass  # it may have happened
            except OSError:
                client = None

    def last(self):
        return self.acknowledged[-1] if self.acknowledged else 0

    def faults(self, client, least, most):
        """How what a rack has differs from what there was at one moment, when between `least` and
        `most` versions were written."""
        found = {}
        for key in {key_of(self.number, version) for version in range(2 * KEYS)}:
            value = client.insist("GET", key)
            if value is not None:
                found[key] = int(value.split(b":")[0])
        newest = max(found.values(), default=0)
        faults = [] if least <= newest <= most else [
            f"w{self.number}: {newest} is not of {least} to {most}"]
        expected = {}
        for version in self.acknowledged:
            if version <= newest:
                expected[key_of(self.number, version)] = version
        faults += [f"{key}: {version} was acknowledged before {newest}, there is {found.get(key)}"
                   for key, version in expected.items() if found.get(key, 0) < version]
        return faults


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)


def start_again(rack):
    for name in list(rack.parts):
        rack.start(name)
    for part in rack.parts.values():
        part.wait_ready()


def content(address):
    client = Client(address)
    return {key: client.insist("GET", key) for key in client.keys()}


with temporary() as directory:
    rack = Rack(directory)
    data, to = os.path.join(directory, "switchback-data"), os.path.join(directory, "monday")
    config = ["--config", rack.config]
    for at, answer in enumerate(Client(rack.resp).pipeline(
            [(b"SET", b"filler:%d" % at, os.urandom(900)) for at in range(20_000)])):
        assert answer == "OK", (at, answer)

    writers = [Writer(number, rack.resp) for number in range(WRITERS)]
    while any(writer.last() < 500 for writer in writers):
        time.sleep(0.05)
    least = [writer.last() for writer in writers]
    killed = kill_midway(f"{to}/node-0", lambda: shutil.rmtree(to), "backup", *config, "--to", to)
    most = [writer.tried for writer in writers]
    check("a backup is killed in the midst", killed)
    refused = run("restore", *config, "--from", to)
    check("a backup that isn't whole isn't restored",
          refused.returncode == 1 and "lacks" in refused.stderr, refused.stderr)
    done = run("backup", *config, "--to", to)
    check("it goes on", done.returncode == 0 and "going on with backup" in done.stderr,
          done.stdout + done.stderr)
    check("its shares are gone from the rack",
          not glob.glob(f"{data}/*/backup-*") and not glob.glob(f"{data}/*/checkpoints/*"))
    again = run("backup", *config, "--to", to)
    check("it isn't made twice",
          again.returncode == 1 and "complete backup already" in again.stderr, again.stderr)
    before = [writer.last() for writer in writers]
    time.sleep(0.5)
    check("the writers go on", all(writer.last() > was for writer, was in zip(writers, before)))
    for writer in writers:
        writer.stopping.set()
        writer.join()

    refused = run("restore", *config, "--from", to)
    check("nothing is restored over data", refused.returncode == 1 and "has data" in refused.stderr,
          refused.stderr)
    with open(f"{directory}/other.toml", "w") as file:
        file.write("[nodes]\ncount = 3\n")
    refused = run("restore", "--config", f"{directory}/other.toml", "--from", to)
    check("nor for another rack",
          refused.returncode == 1 and "2 nodes and 1 chains" in refused.stderr, refused.stderr)
    rack.close()
    os.rename(data, f"{data}.old")
    killed = kill_midway(f"{data}/node-0.restoring-*", lambda: shutil.rmtree(data), "restore",
                         *config, "--from", to)
    check("a restore is killed in the midst", killed)
    done = run("restore", *config, "--from", to)
    check("it goes on", done.returncode == 0, done.stdout + done.stderr)
    left = glob.glob(f"{data}/*.restor*")
    check("nothing of it is left beside the data", not left, left)
    start_again(rack)
    client = Client(rack.resp)
    for writer, low, high in zip(writers, least, most):
        faults = writer.faults(client, low, high)
        check(f"what writer {writer.number} wrote is there up to one moment", not faults,
              faults[:5])
    check("all that was there before is there", client.insist("DBSIZE") >= 20_000)

    # Without writers a backup is the rack.
    was, to = content(rack.resp), os.path.join(directory, "tuesday")
    done = run("backup", *config, "--to", to)
    check("a restored rack has backups", done.returncode == 0, done.stdout + done.stderr)
    rack.close()
    shutil.rmtree(data)
    done = run("restore", *config, "--from", to)
    check("they are restored", done.returncode == 0, done.stdout + done.stderr)
    start_again(rack)
    check("and are equal", content(rack.resp) == was)
    rack.close()

    # A rack that was described by flags says itself what it has.
    resp, metrics = free_addresses(2)
    more = ["--nodes", "3", "--chains", "2", "--resp", resp, "--metrics", metrics]
    one = Process("one", "up", "--data", f"{directory}/one", *more, log=f"{directory}/one.log")
    one.wait_ready()
    Client(resp).insist("SET", "k", "v")
    done = run("backup", "--data", f"{directory}/one", "--metrics", metrics,
               "--to", f"{directory}/of-one")
    check("a rack in one process is backed up", done.returncode == 0, done.stdout + done.stderr)
    one.stop()
    done = run("restore", "--data", f"{directory}/again", "--from", f"{directory}/of-one")
    check("and restored", done.returncode == 0, done.stdout + done.stderr)
    again = Process("again", "up", "--data", f"{directory}/again", *more,
                    log=f"{directory}/again.log")
    again.wait_ready()
    check("and has what it had", Client(resp).insist("GET", "k") == b"v")
    again.stop()

finish()
