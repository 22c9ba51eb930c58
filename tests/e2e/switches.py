"""`switchback ctl switches drain|replace|add` while clients write: no write fails, nothing is lost,
and a switch that is out of service can be killed. Run by switches.sh.
"""

import json
import subprocess

from checks import eventually
from rack import SWITCHBACK, Writers, running


def ctl(rack, *arguments):
    """What `ctl switches` says, as JSON; the message if it is an error."""
    command = [SWITCHBACK, "ctl", "--metrics", rack.metrics, "--json", "switches",
               *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode != 0:
        return done.stderr.strip()
    return {its["index"]: its for its in json.loads(done.stdout)}


def check(what, is_right, found):
    if not is_right:
        raise SystemExit(f"FAILED: {what}: {found}")
    print(f"ok: {what}")


def until(rack, what, is_right):
    holds = lambda: isinstance(its := ctl(rack), dict) and is_right(its)
    check(what, eventually(holds), ctl(rack))


def serving(switches):
    return [index for index, its in switches.items() if its["active"]]


def run(rack):
    until(rack, "one switch serves and the other is a spare",
          lambda its: len(its) == 2 and len(serving(its)) == 1)
    first = serving(ctl(rack))[0]
    spare = 1 - first
    writers = Writers(rack.resp)
    write_on = lambda: check("clients write on", writers.go_on(400), writers.count)
    try:
        write_on()
        found = ctl(rack, "replace", first, 7)
        check("only a spare can take its place", "isn't a spare" in found,
              found)
        found = ctl(rack, "replace", first, spare)
        check("the spare serves in its place",
              serving(found) == [spare] and found[first]["drained"], found)
        rack.kill(f"switch {first}")
        until(rack, "its end is seen", lambda its: not its[first]["alive"])
        write_on()
        found = ctl(rack, "drain", spare)
        check("the last one stays", "the only one that can serve" in found, found)
        rack.kill("controller")
        rack.start("controller")
        rack.parts["controller"].wait_ready()
        rack.start(f"switch {first}")
        rack.parts[f"switch {first}"].wait_ready()
        until(rack, "the next controller knows that it is out of service",
              lambda its: its.get(first, {}).get("alive") and its[first]["drained"]
              and serving(its) == [spare])
        found = ctl(rack, "drain", spare)
        check("what is out of service takes no place", "the only one that can serve" in found,
              found)
        found = ctl(rack, "add", first)
        check("it is a spare again", not found[first]["drained"] and serving(found) == [spare],
              found)
        found = ctl(rack, "drain", spare)
        check("and serves when the other one goes", serving(found) == [first], found)
        write_on()
    finally:
        writers.stop()
    check("clients wrote meanwhile", writers.count > 1000, writers.count)
    check("and no write failed", writers.errors == 0, f"{writers.errors} of {writers.count}")
    failures = writers.check(rack.resp)
    check("nothing is lost", not failures, failures)
    print(f"{writers.count} writes, the longest took {writers.longest_s:.2f} s")


if __name__ == "__main__":
    # No switch is taken for dead since a busy machine lets it wait: writes would fail.
    with running(switch_timeout_ms=3000) as its_rack:
        run(its_rack)
