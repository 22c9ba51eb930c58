"""For the Python tests of this directory, as checks.bash is for those in bash: checks that go on
after a failure."""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

PROGRAM = Path(os.environ.get("SWITCHBACK", "target/release/switchback")).resolve()
# How long something that must happen may take.
PATIENCE_S = 120
failures = []


def check(what, holds, shown=""):
    """Says whether something holds; what is there to look at, if it doesn't."""
    print(("ok: " if holds else "FAILED: ") + what, flush=True)
    if not holds:
        failures.append(what)
        print(shown)


def eventually(look):
    """What this returns once it is true before long; otherwise what it returned last."""
    end = time.monotonic() + PATIENCE_S
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def sample(metrics):
    """The next sample of /live at this address."""
    with urllib.request.urlopen(f"http://{metrics}/live", timeout=PATIENCE_S) as answer:
        data = next(line for line in answer if line.startswith(b"data: "))
    return json.loads(data.removeprefix(b"data: "))


def finish():
    """Ends the test, with the exit code that its checks make."""
    sys.exit(bool(failures))
