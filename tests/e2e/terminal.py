"""switchback demo on a terminal of its own."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from checks import PATIENCE_S, PROGRAM


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
