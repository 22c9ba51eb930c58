"""switchback demo as people and CI run it: on a terminal, without one, and ended in every way."""

import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from checks import PROGRAM, check, eventually, finish
from terminal import Terminal


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
    check("each switch took over once", len(set(re.findall(r"switch (\d) took over", out))) == 2,
          out)
    check("the steps of each recovery are said",
          len(re.findall("detect .*collect .*store", out)) == 2, out)
    records = re.findall(r"([\d,]+) records read once more: nothing lost", out)
    check("records were read after each kill", len(records) == 2 and "0" not in records, out)
    check("it ends with what was lost", out.endswith("\nnothing lost\n"), out)
    check("its processes and files are gone", is_clean(data), parts(data))
    ended = subprocess.Popen(
        [PROGRAM, "demo", "--headless", "--kills", "500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": data},
    )
    first = ended.stdout.readline()
    ended.terminate()
    out, err = ended.communicate()
    check("one that is ended before its kills fails", ended.returncode == 1, f"{first}{out}{err}")
    check("and says so", "of 500 kills" in err, err)
    refused = subprocess.run([PROGRAM, "demo"], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL)
    check("on no terminal it says what to give",
          refused.returncode == 2 and "--headless" in refused.stderr)


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def kill(console, origin, token):
    """Presses the console's button as its page does; the code that comes back."""
    headers = {"Origin": origin, "Authorization": f"Bearer {token}"}
    press = urllib.request.Request(f"{console}demo/kill", method="POST", headers=headers)
    try:
        with urllib.request.urlopen(press, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def on_a_terminal(data):
    demo = Terminal(data)
    check("the board is drawn", demo.shows(r"node 3 +up") and demo.shows(r"switch \d +spare"),
          demo.shown)
    # A piece that was read may end anywhere, also within these.
    check("it names the gateway", demo.shows(r"redis-cli -h \S+ -p \d+\D"), demo.shown)
    check("and where ctl asks", demo.shows(r"ctl status --metrics [\d.:]+[^\d.:]"), demo.shown)
    redis = re.search(r"redis-cli -h (\S+) -p (\d+)\D", demo.shown)
    asked = subprocess.run(
        ["redis-cli", "-h", redis[1], "-p", redis[2], "set", "greeting", "hello"],
        capture_output=True, text=True
    )
    check("the gateway that it names answers", asked.stdout == "OK\n", f"{asked}\n{demo.shown}")
    metrics = re.search(r"ctl status --metrics ([\d.:]+)[^\d.:]", demo.shown)[1]
    command = [PROGRAM, "ctl", "status", "--metrics", metrics]
    ask = lambda: subprocess.run(command, capture_output=True, text=True).stdout
    check("so does ctl", eventually(lambda: "serving" in ask()), ask())
    console, token = re.search(r"(http://[\d.:]+/)#t=([0-9a-f]{32})\D", demo.shown).groups()
    as_a_browser = urllib.request.Request(console, headers={"Accept": "text/html"})
    with urllib.request.urlopen(as_a_browser, timeout=30) as page:
        check("and the console is where it says", b"<title>Switchback" in page.read())
    hot = lambda: json.loads(get(f"{console}hot?limit=1"))["keys"]
    check("the load passes the gateway", eventually(lambda: hot() and hot()[0]["key"].startswith("user")), hot())
    demo.press(b"k")
    check("k kills the switch that serves", demo.shows(r"kill -9 of switch \d"), demo.shown)
    # After the kill, and by a switch that wasn't killed.
    taken_over = r"kill -9 of switch (\d)(?s:.*)switch (?!\1)\d took over, all is served again after"
    check("another takes over", demo.shows(taken_over), demo.shown)
    check("nothing is lost", demo.shows(r"records read once more: nothing lost"), demo.shown)
    check("there is a spare again", demo.shows(r"(?s)nothing lost.*switch \d +spare"), demo.shown)
    demo.shown = ""
    origin = console.removesuffix("/")
    check("without the token the button is refused", kill(console, origin, "0" * 32) == 403)
    check("so it is from another page", kill(console, "http://example.org", token) == 403)
    check("with it the button is taken", kill(console, origin, token) == 200)
    check("it kills the switch that serves", demo.shows(taken_over), demo.shown)
    check("nothing is lost then, either", demo.shows(r"records read once more: nothing lost"), demo.shown)
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
            check(f"{name} ends it with 0, and what was lost",
                  code == 0 and "nothing lost" in demo.shown, demo.shown)
            check(f"the terminal is as before {name}", demo.restored())
        check(f"its processes and files are gone after {name}", is_clean(data), parts(data))


with tempfile.TemporaryDirectory() as directory:
    without_a_terminal(directory)
    on_a_terminal(directory)
    ended_otherwise(directory)
finish()
