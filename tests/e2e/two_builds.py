"""An upgrade under load: a rack of processes of an older program, each of which is replaced by one
of this program, in the order that docs/run/operations.md says. Run by two_builds.sh;
`make upgrade OLD=COMMIT` builds the older one.

It fails if a write fails (but for those of connections that the gateway's end breaks), or if
anything is lost.
"""

import argparse
import os
import time

from rack import SWITCHBACK, Shape, Writers, running
from switches import check, ctl, serving, until

SHAPES = {
    "farreach": Shape(),
    "distreach": Shape("distreach", layers=2, chains=2, spares=1, nodes=4),
}


class Upgrade:
    """A rack, the load, and the older program's processes that are still in it."""

    def __init__(self, rack, program):
        self.rack, self.writers = rack, Writers(rack.resp)
        self.old = set(rack.parts)
        rack.program = program

    def restart(self, name):
        """Ends a process as systemd does, and starts it with the newer program."""
        began = time.monotonic()
        self.rack.parts[name].stop()
        ended = time.monotonic()
        self.start(name)
        print(f"{name}: {ended - began:.2f} s to end, {time.monotonic() - ended:.2f} s to start")

    def start(self, name):
        self.rack.start(name)
        self.rack.parts[name].wait_ready()
        self.old.discard(name)
        runs = os.path.realpath(f"/proc/{self.rack.parts[name].process.pid}/exe")
        check(f"{name} is of the newer program", runs == os.path.realpath(self.rack.program), runs)

    def write_on(self):
        check("clients write on", self.writers.go_on(200), self.writers.count)

    def controller(self):
        self.restart("controller")
        count = len(self.rack.shape.switch_names())
        until(self.rack, "it hears all switches",
              lambda its: len(its) == count and all(one["alive"] for one in its.values()))
        self.write_on()

    def planned(self, name):
        """A switch that is taken out of service before."""
        index = int(name.split()[1])
        found = ctl(self.rack, "drain", index)
        check(f"{name} is out of service", isinstance(found, dict) and index not in serving(found),
              found)
        self.restart(name)
        until(self.rack, f"{name} is heard", lambda its: its[index]["alive"])
        found = ctl(self.rack, "add", index)
        check(f"{name} is back", isinstance(found, dict) and not found[index]["drained"], found)
        self.write_on()

    def dies(self):
        """A switch of the older program that serves, while others are of the newer one."""
        old = [index for index in serving(ctl(self.rack)) if f"switch {index}" in self.old]
        if not old:
            return
        name = f"switch {old[0]}"
        self.rack.kill(name)
        until(self.rack, f"another takes over when {name} dies",
              lambda its: not its[old[0]]["alive"] and old[0] not in serving(its))
        self.write_on()
        self.start(name)
        until(self.rack, f"{name} is heard", lambda its: its[old[0]]["alive"])

    def errors(self, what):
        """Writes that failed since the last look."""
        count, self.writers.errors = self.writers.errors, 0
        print(f"{what}: {count} writes failed", *self.writers.why, sep="\n    ")
        self.writers.why.clear()
        return count


def run(rack, program):
    upgrade = Upgrade(rack, program)
    try:
        upgrade.write_on()
        upgrade.controller()
        names = rack.shape.switch_names()
        for name in names[:len(names) // 2]:
            upgrade.planned(name)
        for name in rack.shape.node_names():
            upgrade.restart(name)
            upgrade.write_on()
        check("no write failed while half of the parts were replaced", upgrade.errors("half") == 0,
              "see above")
        # What a death makes of writes that are under way is known: -INDETERMINATE.
        upgrade.dies()
        upgrade.errors("the death of a switch")
        for name in names[len(names) // 2:]:
            if name in upgrade.old:
                upgrade.planned(name)
        check("no write failed while the others were", upgrade.errors("the others") == 0,
              "see above")
        upgrade.restart("gateway")
        upgrade.write_on()
        upgrade.errors("the end of the gateway's connections")
        check("nothing is of the older program", not upgrade.old, upgrade.old)
    finally:
        upgrade.writers.stop()
    failures = upgrade.writers.check(rack.resp)
    check("nothing is lost", not failures, failures)
    print(f"{upgrade.writers.count} writes, the longest took {upgrade.writers.longest_s:.2f} s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("old", help="a program of an older commit")
    arguments.add_argument("--shape", choices=SHAPES, action="append",
                           help="the racks; all unless given")
    chosen = arguments.parse_args()
    for name in chosen.shape or SHAPES:
        print(f"== {name}")
        # No switch is taken for dead since a busy machine lets it wait: writes would fail.
        with running(shape=SHAPES[name], switch_timeout_ms=3000,
                     program=os.path.abspath(chosen.old)) as rack:
            run(rack, SWITCHBACK)


if __name__ == "__main__":
    main()
