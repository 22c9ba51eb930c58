"""kill -9 of each process under load: every acknowledged write must be there afterwards."""

import json
import os
import subprocess
import sys
import time

import recovery
from checks import PATIENCE_S, eventually
from rack import SWITCHBACK, Client, Failed, Process, Rack, Writers, temporary

passed, failed = 0, 0


def report(name, failures, about):
    global passed, failed
    print(f"{'ok    ' if not failures else 'FAILED'} {name}: {about}", flush=True)
    for failure in failures[:5]:
        print(f"       {failure}")
    passed, failed = passed + (not failures), failed + bool(failures)


def kill_one(rack, victim):
    writers = Writers(rack.resp)
    time.sleep(2)
    rack.kill(victim)
    time.sleep(0.3)
    rack.start(victim)
    rack.parts[victim].wait_ready()
    is_served = writers.go_on()
    time.sleep(3)
    writers.stop()
    failures = list(writers.check(rack.resp))
    if not is_served:
        failures.append(f"no 100 writes in {PATIENCE_S} s after the restart")
    about = f"{writers.count} writes, {writers.errors} errors, longest wait {writers.longest_s * 1000:.0f} ms"
    report(f"kill -9 of {victim}", failures, about)


def distributed():
    with temporary() as directory:
        rack = Rack(directory)
        try:
            for victim in ["gateway", "node 1", "controller"]:
                kill_one(rack, victim)
            # The one that serves, then the one that took over.
            for _ in range(2):
                kill_one(rack, active_switch(rack))
            if failed:
                rack.logs()
        finally:
            rack.close()


def many_cached():
    """The switch dies with 10,000 records that no node has."""
    keys = [b"hot:%05d" % i for i in range(10_000)]
    with temporary() as directory:
        rack = Rack(directory)
        try:
            client = Client(rack.resp)
            began = time.monotonic()
            cached = 0
            while cached < 9_900 and time.monotonic() < began + PATIENCE_S:
                for _ in client.pipeline([[b"SET", key, b"cold"] for key in keys]):
                    pass
                cached = status(rack.metrics)["cache"]["records"]
            answers = list(client.pipeline([[b"SET", key, b"last:" + key] for key in keys]))
            acknowledged = [key for key, answer in zip(keys, answers) if answer == "OK"]
            epoch = status(rack.metrics)["epoch"]
            rack.kill(active_switch(rack))
            began, waits = time.monotonic(), []
            for i in range(200):
                asked = time.monotonic()
                try:
                    client.run("SET", f"uncached:{i}", "1")
                except Failed:
                    pass
                waits.append(time.monotonic() - asked)
            found = list(client.pipeline([[b"GET", key] for key in acknowledged]))
            found = [client.insist("GET", key) if isinstance(got, Failed) else got
                     for key, got in zip(acknowledged, found)]
            wrong = [f"{key}: {got}" for key, got in zip(acknowledged, found)
                     if got != b"last:" + key]
            whole_s = time.monotonic() - began
            times = recovery_after(rack, epoch)
            if cached < 9_900 or times["records"] < 9_900:
                wrong.append(f"only {cached} keys were cached, only {times['records']} recovered")
            split = ", ".join(f"{name} {times[name + '_seconds'] * 1000:.0f} ms"
                              for name in ["detect", "collect", "store", "readmit"])
            report("switch killed with 10,000 cached records", wrong,
                   f"{times['records']} recovered; {split}; an uncached key waited {max(waits) * 1000:.0f} ms at most; "
                   f"all read after {whole_s * 1000:.0f} ms")
            if wrong:
                rack.logs()
        finally:
            rack.close()


def owner_of_many():
    """The owner of a chain dies with 10,000 records that no node has; no client has them,
    either."""
    with temporary() as directory:
        rack = Rack(directory, shape=recovery.SHAPE, **recovery.SETTINGS)
        try:
            found = recovery.kill_owner(rack, 0)
            times = found["recovery"]
            report("owner of a chain killed with 10,000 cached records", found["wrong"],
                   f"{times['records']} recovered, {times['loaded']} loaded by switches; "
                   f"all read after {found['read_s'] * 1000:.0f} ms")
            if found["wrong"]:
                rack.logs()
        finally:
            rack.close()


def start_embedded(directory, *arguments):
    up = Process("up", "up", "--data", os.path.join(directory, "data"), "--resp", "127.0.0.1:0",
                 "--metrics", "127.0.0.1:0", *arguments, log=os.path.join(directory, "up.log"))
    return up, up.wait_ready()


def embedded(durability):
    """Everything dies together: what the spool has must be stored at the next start."""
    with temporary() as directory:
        up, addresses = start_embedded(directory, "--durability", durability)
        writers = Writers(addresses["resp"])
        time.sleep(3)
        up.kill()
        writers.stop()
        began = time.monotonic()
        up, addresses = start_embedded(directory, "--durability", durability)
        restart_s = time.monotonic() - began
        failures = writers.check(addresses["resp"])
        about = f"{writers.count} writes, ready again after {restart_s * 1000:.0f} ms"
        report(f"kill -9 of an embedded rack, durability {durability}", failures, about)
        code = up.stop()
        report("SIGTERM after it", [] if code == 0 else [f"exit code {code}"], "flushed")
        up, addresses = start_embedded(directory, "--durability", "memory")
        failures = writers.check(addresses["resp"])
        report("what was flushed is there without a spool", failures,
               f"{len(writers.acknowledged)} keys")
        up.stop()


def shrunk():
    """A worker that isn't there after a crash left a spool: what it holds is given back, and no
    recovery waits for it for long."""
    with temporary() as directory:
        up, addresses = start_embedded(directory, "--workers", "2")
        writers = Writers(addresses["resp"])
        time.sleep(2)
        up.kill()
        writers.stop()
        for start in ["after", "again"]:
            up, addresses = start_embedded(directory, "--workers", "1")
            began = time.monotonic()
            failures = writers.check(addresses["resp"])
            about = f"{len(writers.acknowledged)} keys read after {(time.monotonic() - began) * 1000:.0f} ms"
            report(f"kill -9, and one worker less {start}", failures, about)
            up.kill()


def active_switch(rack):
    """The one that the controller heard first serves, or that took over."""
    switches = lambda: status(rack.metrics)["switches"]
    active = eventually(lambda: [its["index"] for its in switches() if its["active"]])
    return f"switch {active[0]}"


def recovery_after(rack, epoch):
    """How the recovery went that began a later epoch."""
    def later():
        its = status(rack.metrics)["recovery"]
        return its and its["epoch"] > epoch and its

    its = eventually(later)
    assert its, f"no recovery after epoch {epoch}"
    return its


def status(address):
    out = subprocess.run([SWITCHBACK, "ctl", "status", "-o", "json", "--metrics", address],
                         capture_output=True, text=True)
    return json.loads(out.stdout)


def main():
    embedded("everysec")
    embedded("always")
    shrunk()
    distributed()
    many_cached()
    owner_of_many()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
