"""switchback demo as people and CI run it: on a terminal, without one, and ended in every way."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import urllib.request
from pathlib import Path

from checks import PATIENCE_S, PROGRAM, check, eventually, finish


def parts(data):
    """Process ids of the parts whose files are below this directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(os.fsencode(data) in argument for argument in arguments):
            found.append(int(file.parent.name))
    return found


def is_clean(data):
    """Whether the processes of a demo that ended are gone, and its files are."""
    return eventually(lambda: not parts(data) and not os.listdir(data))


class Terminal:
    """A demo on a terminal of its own."""

    def __init__(self, data):
        self.shown = ""
        self.master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.terminal = terminal
        self.modes = termios.tcgetattr(terminal)
        self.process = subprocess.Popen(
            [PROGRAM, "demo"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TMPDIR": data, "TERM": "xterm", "NO_COLOR": "1"},
            # The terminal is its own, so that Ctrl-C reaches it.
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read(self):
        """Reads a piece of what it shows; whether there was any."""
        readable, _, _ = select.select([self.master], [], [], 0.1)
        if readable:
            self.shown += os.read(self.master, 65536).decode(errors="replace")
        return bool(readable)

    def read_all(self):
        while self.read():
            pass

    def shows(self, pattern):
        """Waits until this is shown."""
        end = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown):
            if time.monotonic() > end:
                return False
            if self.process.poll() is not None:
                self.read_all()
                return re.search(pattern, self.shown) is not None
            self.read()
        return True

    def press(self, key):
        os.write(self.master, key)

    def ends(self):
        """Waits for its end; its exit code."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        if self.process.poll() is not None:
            self.read_all()
        return self.process.poll()

    def restored(self):
        return termios.tcgetattr(self.terminal) == self.modes


def without_a_terminal(data):
    run = subprocess.run(
        [PROGRAM, "demo", "--headless", "--kills", "2"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": data},
    )
    out = run.stdout
    check("two kills without a terminal", run.returncode == 0, out + run.stderr)
    check("each switch took over once", len(set(re.findall(r"switch (\d) took over", out))) == 2, out)
    check("the steps of each recovery are said", len(re.findall("detect .*collect .*store", out)) == 2, out)
    records = re.findall(r"([\d,]+) records read once more: nothing lost", out)
    check("records were read after each kill", len(records) == 2 and "0" not in records, out)
    check("it ends with what was lost", out.endswith("\nnothing lost\n"), out)
    check("its processes and files are gone", is_clean(data), parts(data))
    refused = subprocess.run([PROGRAM, "demo"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check("on no terminal it says what to give", refused.returncode == 2 and "--headless" in refused.stderr)


def on_a_terminal(data):
    demo = Terminal(data)
    check("the board is drawn", demo.shows(r"node 3 +up") and demo.shows(r"switch \d +stands by"), demo.shown)
    # A piece that was read may end anywhere, also within these.
    check("it names the gateway", demo.shows(r"redis-cli -h \S+ -p \d+\D"), demo.shown)
    check("and where ctl asks", demo.shows(r"ctl status --metrics [\d.:]+[^\d.:]"), demo.shown)
    redis = re.search(r"redis-cli -h (\S+) -p (\d+)\D", demo.shown)
    asked = subprocess.run(
        ["redis-cli", "-h", redis[1], "-p", redis[2], "set", "greeting", "hello"], capture_output=True, text=True
    )
    check("the gateway that it names answers", asked.stdout == "OK\n", f"{asked}\n{demo.shown}")
    metrics = re.search(r"ctl status --metrics ([\d.:]+)[^\d.:]", demo.shown)[1]
    command = [PROGRAM, "ctl", "status", "--metrics", metrics]
    ask = lambda: subprocess.run(command, capture_output=True, text=True).stdout
    check("so does ctl", eventually(lambda: "serving" in ask()), ask())
    console = re.search(r"(http://[\d.:]+/) +the console", demo.shown)[1]
    as_a_browser = urllib.request.Request(console, headers={"Accept": "text/html"})
    with urllib.request.urlopen(as_a_browser, timeout=30) as page:
        check("and the console is where it says", b"<title>Switchback" in page.read())
    demo.press(b"k")
    check("k kills the switch that serves", demo.shows(r"kill -9 of switch \d"), demo.shown)
    # After the kill, and by a switch that wasn't killed.
    taken_over = r"kill -9 of switch (\d)(?s:.*)switch (?!\1)\d took over, all is served again after"
    check("another takes over", demo.shows(taken_over), demo.shown)
    check("nothing is lost", demo.shows(r"records read once more: nothing lost"), demo.shown)
    demo.press(b"q")
    check("q ends it with 0", demo.ends() == 0, demo.shown)
    check("the terminal is as before", demo.restored())
    check("its processes and files are gone after q", is_clean(data), parts(data))


def ended_otherwise(data):
    for name, end in {
        "Ctrl-C": lambda demo: demo.press(b"\x03"),
        "SIGTERM": lambda demo: demo.process.terminate(),
        "kill -9": lambda demo: demo.process.kill(),
    }.items():
        demo = Terminal(data)
        check(f"it starts, to be ended by {name}", demo.shows(r"operations/s"), demo.shown)
        end(demo)
        code = demo.ends()
        if name == "kill -9":
            check("it was killed", code == -signal.SIGKILL, code)
        else:
            check(f"{name} ends it with 0, and what was lost", code == 0 and "nothing lost" in demo.shown, demo.shown)
            check(f"the terminal is as before {name}", demo.restored())
        check(f"its processes and files are gone after {name}", is_clean(data), parts(data))


with tempfile.TemporaryDirectory() as directory:
    without_a_terminal(directory)
    on_a_terminal(directory)
    ended_otherwise(directory)
finish()
