"""Directories that a program of commit 447d43a wrote (tests/fixtures/447d43a): they open with every
value, are of this version's format afterwards, and what a killed start has left is opened by the
next one, whichever step it was killed at. What is damaged or of a later format is refused by name.
Run by upgrade.sh.
"""

import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

from checks import PATIENCE_S
from rack import SWITCHBACK, Client, Process, temporary

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURE = os.path.join(HERE, "../fixtures/447d43a")
with open(os.path.join(FIXTURE, "expected.json")) as file:
    EXPECTED = json.load(file)
NODES = ["data/node-0", "data/node-1"]
# What this version writes.
CONTROLLER_FORMAT = 7
NODE_FORMAT = 3
SPOOL_FORMAT = 1
# Racks that start at a time: most of a start is waiting.
PARALLEL = 8

passed, failed = 0, 0


def report(name, failures):
    global passed, failed
    print(f"{'ok    ' if not failures else 'FAILED'} {name}", flush=True)
    for failure in failures[:5]:
        print(f"       {failure}")
    passed, failed = passed + (not failures), failed + bool(failures)


class Copy:
    """A copy of the fixture's directory, and the rack that has it."""

    def __init__(self, directory, name, has_spool=True):
        self.directory = os.path.join(directory, name)
        os.mkdir(self.directory)
        with open(os.path.join(FIXTURE, "rack.toml")) as file:
            settings = file.read()
        if has_spool:
            # On a busy machine a gateway may need more than the fixture's second until it brings
            # its spool.
            settings = settings.replace("spool_wait_ms = 1000", "spool_wait_ms = 60000")
        with open(self.path("rack.toml"), "w") as file:
            file.write(settings)
        with tarfile.open(os.path.join(FIXTURE, "data.tar.xz")) as archive:
            archive.extractall(self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, before=()):
        """Begins to start a rack."""
        return Process("up", "up", "--config", self.path("rack.toml"), log=self.path("log"),
                       before=before)

    def killed_at(self, step, library):
        """Starts a rack, and kills it at this step; whether that was before it was ready."""
        up = self.start(before=["env", f"LD_PRELOAD={library}", f"KILL_AT_STEP={step}"])
        is_ready = up.process.stdout.readline() != ""
        if is_ready:
            up.kill()
        assert up.process.wait() == -signal.SIGKILL, open(up.log).read()
        return not is_ready

    def wrong(self, expected=EXPECTED["values"], expiring=EXPECTED["expiring"], stop=Process.kill):
        """Starts a rack, and says which keys haven't what is expected, and which don't expire that
        should."""
        up = self.start()
        client = Client(up.wait_ready()["resp"])
        failures = []
        for key, value in expected.items():
            got = client.insist("GET", key)
            if isinstance(value, dict):
                got = {"bytes": len(got or b""), "sha256": hashlib.sha256(got or b"").hexdigest()}
            elif value is not None:
                value = value.encode()
            if got != value:
                failures.append(f"{key}: {got!r} instead of {value!r}")
        failures += [f"{key} never expires" for key in expiring if client.insist("PTTL", key) <= 0]
        client.close()
        code = stop(up)
        return failures + ([f"exit code {code}"] if code else [])

    def formats(self):
        """What isn't of this version's format."""
        failures = []
        with open(self.path("data/controller/directory"), "rb") as file:
            magic = file.read(8)
        if magic != b"SBCTRL\0" + bytes([CONTROLLER_FORMAT]):
            failures.append(f"the controller's directory begins with {magic}")
        for node in NODES:
            with open(self.path(f"{node}/SWITCHBACK")) as file:
                marker = file.read()
            if f"\nformat {NODE_FORMAT}\ncomplete\n" not in marker:
                failures.append(f"{node} has the marker {marker!r}")
        return failures

    def refusal(self):
        """The message with which a rack doesn't start."""
        done = subprocess.run([SWITCHBACK, "up", "--config", self.path("rack.toml")],
                              capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
        is_refused = done.returncode == 1 and not done.stdout
        return done.stderr if is_refused else f"exit code {done.returncode}: {done.stdout}{done.stderr}"


def opens(directory):
    copy = Copy(directory, "opened")
    assert copy.formats(), "the fixture is of an older format"
    report("every value is there", copy.wrong())
    report("the files are of this version's format", copy.formats())
    report("every value is there after kill -9", copy.wrong(stop=Process.stop))
    report("every value is there after SIGTERM", copy.wrong())


def only_in_the_spool(directory):
    """Fails if the fixture has nothing that only its spool has."""
    copy = Copy(directory, "without-spool", has_spool=False)
    shutil.rmtree(copy.path("data/spool"))
    failures = copy.wrong(EXPECTED["without the spool"], expiring=[])
    report("without its spool, the values of the snapshot are there", failures)


def interrupted_at(step, directory, library):
    """What is wrong after a start that was killed at this step, and whether anything was of the
    older format then; None if it was ready before.
    """
    copy = Copy(directory, f"step-{step}")
    if not copy.killed_at(step, library):
        return None
    is_older = bool(copy.formats())
    failures = [f"step {step}: {failure}" for failure in copy.wrong() + copy.formats()]
    shutil.rmtree(copy.directory)
    return failures, is_older


def interrupted(directory):
    library = os.path.join(directory, "kill_at_step.so")
    subprocess.run(["cc", "-shared", "-fPIC", os.path.join(HERE, "kill_at_step.c"), "-o", library],
                   check=True)
    results = []
    with ThreadPoolExecutor(PARALLEL) as pool:
        while None not in results:
            steps = range(len(results) + 1, len(results) + 1 + PARALLEL)
            results += pool.map(lambda step: interrupted_at(step, directory, library), steps)
    killed = [result for result in results if result]
    failures = [failure for found, _ in killed for failure in found]
    older = sum(is_older for _, is_older in killed)
    if not 0 < older < len(killed):
        failures.append("no step was within the upgrade, or none after it")
    steps = f"{len(killed)} steps of the start, {older} of them before all was upgraded"
    report(f"every value is there after kill -9 at {steps}", failures)


def change(path, at, byte):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([byte]))


def flip(path, at):
    with open(path, "rb") as file:
        found = file.read()[at]
    change(path, at if at >= 0 else os.path.getsize(path) + at, found ^ 1)


def refuses(directory):
    def case(name, file, damage, *words):
        copy = Copy(directory, "refused")
        path = min(glob.glob(copy.path(file)))
        damage(path)
        with open(path, "rb") as opened:
            before = opened.read()
        said = copy.refusal()
        failures = [f"'{word}' is not in: {said}" for word in (*words, os.path.dirname(path))
                    if word not in said]
        with open(path, "rb") as opened:
            if opened.read() != before:
                failures.append("it was changed")
        report(f"{name} is refused by name", failures)
        shutil.rmtree(copy.directory)

    def newer_marker(path):
        with open(path) as file:
            marker = file.read()
        with open(path, "w") as file:
            file.write(marker.replace("format 1", f"format {NODE_FORMAT + 1}"))

    # At the beginning of a sentence, or not.
    other_version = "se the version of Switchback that wrote it"
    newer = f"is of format {CONTROLLER_FORMAT + 1}, and this program reads formats 1 to {CONTROLLER_FORMAT}"
    for file in ("directory", "snapshot"):
        path = f"data/controller/{file}"
        case(f"a later format of the controller's {file}", path,
             lambda path: change(path, 7, CONTROLLER_FORMAT + 1),
             f"controller/{file}", newer, other_version)
        case(f"a damaged {file} of the controller", path, lambda path: flip(path, -1),
             f"controller/{file}", "is damaged", "from a backup")
    case("a later format of the spool", "data/spool/*.spool",
         lambda path: change(path, 7, SPOOL_FORMAT + 1),
         ".spool", f"is of format {SPOOL_FORMAT + 1}, and this program reads format {SPOOL_FORMAT}",
         other_version)
    case("a spool's damaged beginning", "data/spool/*.spool", lambda path: flip(path, 0),
         ".spool", "damaged", "move it away")
    case("a node of a later format", "data/node-1/SWITCHBACK", newer_marker,
         "node-1", f"format {NODE_FORMAT + 1}", other_version)
    case("a node's damaged table", "data/node-0/*.sst", lambda path: os.truncate(path, 100),
         "node-0", "damaged", "backup")
    case("a node's damaged marker", "data/node-0/SWITCHBACK", lambda path: flip(path, 0),
         "node-0/SWITCHBACK")


def main():
    began = time.monotonic()
    with temporary() as directory:
        opens(directory)
        only_in_the_spool(directory)
        refuses(directory)
        interrupted(directory)
    print(f"{passed} passed, {failed} failed, in {time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
