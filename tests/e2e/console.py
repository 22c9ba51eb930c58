"""The web console in Debian's Chromium, on a rack of processes under load.

`SCREENSHOTS=DIRECTORY` has it write the pictures of docs/run/console.md there, and nothing else.
"""

import contextlib
import http.client
import http.server
import json
import os
import random
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import axe_playwright_python
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import PATIENCE_S, PROGRAM, check, eventually, finish
from rack import Client, Failed, Rack, Shape, temporary
from terminal import Terminal

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
RULES = Path(__file__).parents[2] / "contrib/prometheus/switchback.rules.yml"
PAGES = ["rack", "heat", "keys", "cache", "nodes", "timeline", "lab", "health"]
BYTES_MAX = 200_000
SCREENSHOTS = os.environ.get("SCREENSHOTS")
# Has the page itself count how often it asks until a key is the first: this test may look late.
COUNT_LOOKS = """
    const asks = (it) => it.name.includes("/hot?");
    const looks = () => performance.getEntriesByType("resource").filter(asks).length;
    const captions = [...document.querySelectorAll("caption")];
    const caption = captions.find((it) => it.textContent === "Hottest keys");
    const rows = caption.parentNode.tBodies[0].rows;
    const before = looks();
    const look = () => {
        if (rows[0]?.cells[1]?.textContent.trim() !== arguments[0]) return;
        window.looked ??= looks() - before;
        observer.disconnect();
    };
    const observer = new MutationObserver(look);
    observer.observe(caption.parentNode, { childList: true, subtree: true, characterData: true });
    look();
"""


class Load:
    """A skewed load, and a key that can be planted into it."""

    def __init__(self, address, password=None):
        self.address, self.password, self.planted, self.over = address, password, None, False
        self.batches = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        client = None
        draw = random.Random(7)
        while not self.over:
            try:
                client = client or self.connect()
                for answer in client.pipeline([self.command(draw) for _ in range(100)]):
                    if isinstance(answer, Failed):
                        time.sleep(0.01)
                self.batches += 1
            except OSError:
                client = None
                time.sleep(0.05)

    def connect(self):
        client = Client(self.address)
        if self.password:
            client.run("AUTH", self.password)
        return client

    def command(self, draw):
        if self.planted and draw.random() < 0.5:
            key, size = self.planted, 612
        else:
            kind = draw.choice(["user", "user", "user", "cart", "img"])
            # Some are much hotter, but all are asked for again and again, so that a recovery has an
            # end.
            is_even = draw.random() < 0.3
            rank = draw.randrange(100) if is_even else int(draw.paretovariate(1.0)) % 100
            key, size = f"{kind}:{rank}", 3000 if kind == "img" else 100
        if draw.random() < 0.4:
            return [b"SET", key.encode(), b"x" * size]
        return [b"GET", key.encode()]

    def end(self):
        self.over = True
        self.thread.join()


class Browser:
    def __init__(self, origin, scheme="light"):
        options = webdriver.ChromeOptions()
        for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                         "--window-size=1440,1000"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        service = webdriver.ChromeService("/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(PATIENCE_S)
        self.origin, self.requests, self.errors = origin, [], []
        self.colours(scheme)

    def colours(self, scheme):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def open(self, page, origin=None):
        self.driver.get(f"{origin or self.origin}/#/{page}")

    def go(self, page):
        """To another page of the console, without loading it anew."""
        self.driver.execute_script("location.hash = arguments[0]", f"#/{page}")
        assert self.shows(
            "main", lambda main: main.get_attribute("aria-label").lower() == page.split("?")[0])

    def find(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def rows(self, caption):
        """The cells of a table's rows. At once, since rows come and go."""
        return self.driver.execute_script(
            "const caption = [...document.querySelectorAll('caption')].find((it) => it.textContent === arguments[0]);"
            "const rows = caption ? [...caption.parentNode.tBodies[0].rows] : [];"
            "return rows.map((row) => [...row.cells].map((cell) => cell.textContent.trim()))",
            caption)

    def text(self, css="main"):
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent).join('\\n')", css)

    def shows(self, css, holds=lambda _: True):
        def is_there():
            try:
                return any(holds(found) for found in self.find(css))
            except StaleElementReferenceException:
                return False  # the page was drawn anew meanwhile
        return eventually(is_there)

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self):
        return self.driver.switch_to.active_element

    def read_logs(self):
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        self.errors += [entry["message"] for entry in self.driver.get_log("browser")
                        if entry["level"] == "SEVERE"]

    def close(self):
        self.driver.quit()


def told(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
        return json.load(answer)


def a_planted_key_is_first(browser, load):
    browser.open("keys")
    check("keys are listed", eventually(lambda: len(browser.rows("Hottest keys")) > 10))
    first = lambda: (browser.rows("Hottest keys") or [[""] * 2])[0][1]
    check("another key is first", first() != "planted:77", first())
    began, before = time.monotonic(), load.batches
    load.planted = "planted:77"
    # The batch that was under way may have been without it.
    check("it is asked for", eventually(lambda: load.batches >= before + 2))
    browser.driver.execute_script(COUNT_LOOKS, "planted:77")
    check("a planted key becomes the first", eventually(lambda: first() == "planted:77"),
          browser.rows("Hottest keys")[:3])
    looked = browser.driver.execute_script("return window.looked")
    print(f"it is first after {time.monotonic() - began:.1f} s, {looked} looks of the page")
    check("within three looks, one a second", looked is not None and looked <= 3, looked)
    row = lambda: next((row for row in browser.rows("Hottest keys") if row[1] == "planted:77"),
                       None)
    # Once the window has no time before it.
    half = lambda: (key := row()) and 35 < float(key[6].split()[0]) < 65 and key
    key = eventually(half)
    check("its share is about half", key, row())
    is_cached = lambda: (rows := browser.rows("Hottest keys")) and rows[0][-1] == "switch"
    check("it is in the switch before long", eventually(is_cached))
    browser.go("heat")
    hottest = lambda: (browser.rows("Hottest ranges") or [[""]])[0]
    check("its range is the hottest of the heat", eventually(lambda: hottest()[0] == key[9]),
          (hottest(), key))


def all_parts_are_shown(browser):
    browser.go("rack")
    nodes = lambda: browser.rows("Nodes")
    is_number = lambda text: text.replace(".", "").replace("k", "").isdigit()
    check("the nodes' own figures are there", eventually(
        lambda: len(nodes()) == 2 and all(is_number(row[2]) for row in nodes())), nodes())
    label = lambda: browser.driver.execute_script(
        "return document.querySelector('svg.rack')?.getAttribute('aria-label') ?? ''")
    check("the switch's, too",
          eventually(lambda: "answered by the cache" in label() and "–" not in label()), label())
    without = lambda: browser.text("p.say")
    check("the load without the cache is said",
          eventually(lambda: "Without the cache node" in without()), without())
    browser.go("nodes")
    check("what if has each node", eventually(
        lambda: len(browser.rows("Loads of nodes: without a cache, now, and what if")) == 2))
    browser.go("cache")
    check("prefixes are there", eventually(
        lambda: any(row[0] == "user:" for row in browser.rows("Prefixes"))), browser.text())


def keys_alone_suffice(browser):
    browser.open("rack")
    check("the page is there", browser.shows("nav a"))
    browser.press(Keys.TAB)
    check("Tab leads to the content first", browser.focused().text == "to the content",
          browser.focused().text)
    for _ in range(2):
        browser.press(Keys.TAB)
    check("then to the pages", browser.focused().text == "Heat", browser.focused().text)
    browser.press(Keys.ENTER)
    browser.shows("canvas.heat")

    def tab_to(what, is_there):
        for _ in range(60):
            # What has the focus may be drawn anew while it is looked at.
            with contextlib.suppress(StaleElementReferenceException):
                if is_there(browser.focused()):
                    return
            browser.press(Keys.TAB)
        check(f"Tab reaches {what}", False)

    tab_to("the heat map", lambda it: it.tag_name == "canvas")
    browser.press(Keys.ARROW_LEFT, Keys.ARROW_UP)
    chosen = lambda: browser.text("tr.chosen td:first-child")
    check("arrows choose a range", eventually(lambda: len(chosen()) == 2), chosen())
    chosen_range = chosen()
    browser.press(Keys.ENTER)
    check("Enter shows its keys", eventually(
        lambda: f"range={chosen_range}" in browser.driver.current_url), browser.driver.current_url)
    browser.open("nodes")
    browser.shows("input[type=range]")
    tab_to("the slider", lambda it: it.get_attribute("type") == "range")
    records = lambda: browser.text("label.field:first-of-type b")
    before = records()
    browser.press(Keys.HOME)
    check("and the slider is moved", eventually(lambda: records() == "0 records"),
          (before, records()))


def serving(rack):
    """The name of the switch that serves: the first that the controller heard."""
    return next(f"switch {it['index']}" for it in told(rack.metrics, "/status")["switches"]
                if it["active"])


def bars_equal_the_status(browser, rack):
    browser.open("timeline")
    epoch = told(rack.metrics, "/status")["epoch"]
    killed = serving(rack)
    rack.kill(killed)

    def over():
        status = told(rack.metrics, "/status")
        recovery = status["recovery"]
        return status["epoch"] > epoch and recovery and recovery["complete"] and recovery

    recovery = eventually(over)
    check("the other switch takes over", recovery)
    steps = lambda: browser.driver.execute_script(
        "const bars = document.querySelectorAll('dl[data-epoch=\"' + arguments[0] + '\"] [data-step]');"
        "return [...bars].map((bar) => [bar.dataset.step, Number(bar.dataset.seconds), bar.getBoundingClientRect().width])",
        recovery["epoch"])
    expected = [recovery[f"{step}_seconds"] for step in ["detect", "collect", "store", "readmit"]]
    check("the bars' steps are those of /status",
          eventually(lambda: [bar[1] for bar in steps()] == expected), (steps(), expected))
    widths, longest = [bar[2] for bar in steps()], max(expected)
    as_long = all(abs(width / max(widths) - step / longest) < 0.05
                  for width, step in zip(widths, expected))
    check("and as long", as_long, (widths, expected))
    check("the switch that died is said to be down",
          eventually(lambda: f"{killed} is down" in browser.text("ol.events")), browser.text())


def health_is_shown(browser, rack):
    """After the death of a switch: checks, their alerts, and what the machine has."""
    browser.go("health")
    checks = lambda: {row[1]: row for row in browser.rows("Checks")}
    is_down = lambda: checks().get("spare", [""])[0] == "look"
    check("the lack of a spare is said", eventually(is_down), checks())
    check("a recovery, too", checks()["recoveries"][0] == "look", checks()["recoveries"])
    others = {row[0] for name, row in checks().items() if name not in ["spare", "recoveries"]}
    check("all else is well, or another process's to tell", others == {"well", "–"}, checks())
    check("snapshots are taken", checks()["snapshots"][2].startswith("generation"), checks()["snapshots"])
    # Whether a process answers at all is Prometheus' to say.
    rules = {line.split()[-1] for line in RULES.read_text().splitlines()
             if "- alert:" in line} - {"SwitchbackDown"}
    named = {row[3] for row in checks().values()} - {""}
    check("each alert has its check", named == rules, named ^ rules)
    machines = lambda: browser.rows("Machines")
    check("the machine is looked at", eventually(lambda: len(machines()) > 5), machines())
    told_of = [[it["host"], one["verdict"], one["name"]] for it in told(rack.metrics, "/machines")
               for one in it["checks"]]
    check("it is one, with each check", [row[:3] for row in machines()] == told_of,
          (machines(), told_of))
    check("as the doctor has them",
          {"kernel", "memory", "clock", "data"} <= {row[2] for row in machines()}, machines())


def other_nodes_are_tried(browser):
    browser.go("nodes?nodes=5&scheme=nocache")
    rows = lambda: browser.rows("Loads of nodes: without a cache, now, and what if")
    check("five nodes are thought of", eventually(lambda: len(rows()) == 5), rows())
    check("two are there", eventually(
        lambda: [row[3] == "–" for row in rows()] == [False, False, True, True, True]), rows())
    is_said = lambda: "and 5 nodes" in browser.text("p.say")
    check("and what that would be is said", eventually(is_said), browser.text("p.say"))
    # One node has all that two have.
    browser.go("nodes?nodes=1&scheme=nocache")
    numbers = lambda: [float(row[-1].rstrip("k")) for row in rows() if row[-1] != "–"]
    check("one node would have everything", eventually(
        lambda: len(numbers()) == 1 and [row[-1] == "–" for row in rows()] == [False, True]),
          rows())


def axe_finds_nothing(browser, pages=PAGES):
    for scheme in ["light", "dark"]:
        browser.colours(scheme)
        for page in pages:
            browser.go(page)
            eventually(lambda: "asking" not in browser.text()
                       and "waiting for the first" not in browser.text())
            if not browser.driver.execute_script("return 'axe' in window"):
                browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
            # Light and dark differ in their colours alone.
            rules = {} if scheme == "light" else {"runOnly": ["color-contrast"]}
            run = "axe.run(arguments[0]).then((found) => arguments[1](found.violations))"
            found = browser.driver.execute_async_script(run, rules)
            shown = [(it["id"], [(node["html"][:200], node["failureSummary"])
                                 for node in it["nodes"]][:3]) for it in found]
            check(f"axe finds nothing on {page} ({scheme})", not found, shown)


def a_trace_is_played(browser, directory):
    events = [
        {"at_us": 5, "kind": "part", "part": "switch0", "arrives_us": [], "text": "switch0 starts"},
        {"at_us": 10, "kind": "packet", "from": "client1", "to": "switch0", "key": "ab12",
         "arrives_us": [15], "text": "Write Ok seq 17"},
        {"at_us": 20, "kind": "packet", "from": "switch0", "to": "node2", "key": "ab12",
         "arrives_us": [], "text": "Write Ok seq 17"},
        {"at_us": 30, "kind": "message", "from": "node2", "to": "controller", "arrives_us": [31],
         "text": "Heartbeat"},
        {"at_us": 40, "kind": "violation", "arrives_us": [],
         "text": "VIOLATION linearizable: key-3 reads what was overwritten"},
    ]
    trace = {"seed": 4711, "scheme": "farreach", "ablation": "no-floors", "left_out": 0,
             "events": events,
             "violation": {"check": "linearizable", "text": ""}}
    file = os.path.join(directory, "trace.json")
    with open(file, "w") as written:
        json.dump(trace, written)
    browser.go("lab")
    browser.read_logs()
    before = len(browser.requests)
    browser.shows("input[type=file]")
    browser.find("input[type=file]")[0].send_keys(file)
    check("the trace is shown", eventually(
        lambda: "seed 4711, farreach, ablation no-floors" in browser.text()), browser.text())
    rows = lambda: browser.rows("Events around the chosen one")
    are_there = lambda: [row[1] for row in rows()] == ["", "client1", "switch0", ""]
    check("its events are there, but for control messages", eventually(are_there), rows())
    check("what was lost is said to be", rows()[2][4] == "lost", rows())
    is_chosen = lambda: "VIOLATION" in browser.text("tr.chosen")
    check("the violation is chosen", eventually(is_chosen), browser.text("tr.chosen"))
    browser.find("button[aria-label='event before']")[0].click()
    check("one can step back", eventually(lambda: "seq 17" in browser.text("tr.chosen")),
          browser.text("tr.chosen"))
    browser.read_logs()
    check("it was sent nowhere",
          all("live" in url or "data:" in url for url in browser.requests[before:]),
          browser.requests[before:])


def commands_need_the_token(browser, rack):
    browser.open("health")
    check("without the token nothing can be commanded",
          eventually(lambda: "need the console's token" in browser.text()), browser.text())
    for says in ["no chain goes on without a switch that lives",
                 "no acknowledged value was given up"]:
        check(f"the rack is well: {says}", eventually(lambda: says in browser.text("main")),
              browser.rows("Checks"))
    settings = lambda: dict(row[:2] for row in browser.rows("Settings in force"))
    check("settings are shown", eventually(lambda: settings().get("[console] access") == "control"),
          settings())
    check("secrets are not", "hunter2" not in browser.driver.page_source
          and settings()["[gateway] has_password"] == "true")
    file = os.path.join(rack.directory, "switchback-data/controller/console-token")
    check("its file is the owner's alone", os.stat(file).st_mode & 0o777 == 0o600)
    token = Path(file).read_text().strip()
    browser.driver.get(f"{browser.origin}/?again#t={token}")
    browser.shows("nav a")
    check("the token isn't left in the address",
          eventually(lambda: token not in browser.driver.current_url), browser.driver.current_url)
    browser.go("health")
    snapshot = "//button[text()='Take a snapshot']"
    eventually(lambda: browser.driver.find_elements(By.XPATH, snapshot))
    browser.driver.find_element(By.XPATH, snapshot).click()
    check("with it a snapshot is taken",
          eventually(lambda: "is durable" in browser.text("p[role=status]")), browser.text())
    drain = browser.driver.find_element(By.XPATH, "//button[text()='Drain the cache']")
    check("a drain waits for the rack's name", not drain.is_enabled())
    name = browser.driver.find_element(By.XPATH, "//label[contains(., 'type the rack')]//input")
    name.send_keys("rack")
    eventually(drain.is_enabled)
    drain.click()
    check("then the cache is drained", eventually(
        lambda: "brought to their nodes" in browser.text("p[role=status]")), browser.text())


class Proxy(http.server.BaseHTTPRequestHandler):
    """Serves a rack under /racks/one/, as it is told to in docs/run/console.md: with the Host of
    the request."""

    def do_GET(self):
        path = self.path.removeprefix("/racks/one")
        headers = {name: self.headers[name] for name in ["Accept", "Host"] if self.headers[name]}
        # The browser goes, or the rack ends.
        with contextlib.suppress(OSError, http.client.HTTPException):
            try:
                answer = urllib.request.urlopen(
                    urllib.request.Request(f"http://{self.server.rack}{path}", headers=headers))
            except urllib.error.HTTPError as error:
                answer = error
            self.send_response(answer.status)
            for name in ["Content-Type", "Content-Security-Policy"]:
                if answer.headers[name]:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            while piece := answer.read1():
                self.wfile.write(piece)

    def log_message(self, *_):
        pass


def it_works_behind_a_proxy(browser, rack):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.rack, proxy.daemon_threads, proxy.block_on_close = rack.metrics, True, False
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{proxy.server_port}"
        browser.read_logs()
        before = len(browser.requests)
        browser.open("keys", f"{origin}/racks/one")
        check("behind a proxy under a path it works", eventually(
            lambda: len(browser.rows("Hottest keys")) > 5 and "serving" in browser.text("header")))
        browser.read_logs()
        wrong = [url for url in browser.requests[before:]
                 if not url.startswith(f"{origin}/racks/one/")]
        check("and asks nothing outside of that path", not wrong, wrong)
        del browser.requests[before:]
        browser.driver.get("about:blank")
        proxy.shutdown()


def the_demo_has_a_button(directory):
    """The console of a demo, opened as its terminal says, shows the load and kills the switch."""
    demo = Terminal(directory)
    browser = None
    try:
        check("a demo starts", demo.shows(r"switch \d +spare"), demo.shown)
        origin, token = re.search(r"(http://[\d.:]+)/#t=([0-9a-f]{32})\D", demo.shown).groups()
        browser = Browser(origin)
        browser.driver.get(f"{origin}/#t={token}")
        is_load = lambda: any(row[0].startswith("user") for row in browser.rows("Hottest keys"))
        check("its load's keys are shown", eventually(is_load), browser.rows("Hottest keys"))
        button = "//button[starts-with(text(), 'Kill the switch that serves')]"
        check("there is a button", eventually(lambda: browser.driver.find_elements(By.XPATH, button)))
        axe_finds_nothing(browser, ["rack"])
        at_button = lambda: browser.focused().text.startswith("Kill the switch")
        for _ in range(40):
            if at_button():
                break
            browser.press(Keys.TAB)
        check("the keyboard reaches it", at_button())
        browser.press(Keys.ENTER)
        check("the button kills the switch", demo.shows(r"kill -9 of switch \d"), demo.shown)
        check("the page says what comes", eventually(lambda: "asked to kill it" in browser.text("p[role=status]")))
        check("and nothing is lost", demo.shows("records read once more: nothing lost"), demo.shown)
        browser.read_logs()
        inside = ("data:", "about:", "chrome:", f"{origin}/")
        outside = [url for url in browser.requests if not url.startswith(inside)]
        check("no request of the demo's page leaves the origin", not outside, outside)
        check("no script of it fails", not browser.errors, browser.errors)
    finally:
        if browser:
            browser.close()
        demo.press(b"q")
    check("the demo ends well", demo.ends() == 0, demo.shown)


def what_is_not_to_be_is_not_missed(browser):
    """A rack with neither a spare nor a period of snapshots is well: no alert fires for it, either."""
    with temporary() as directory:
        rack = Rack(directory, shape=Shape(spares=0), snapshot_period_ms=0, switch_timeout_ms=1500)
        browser.read_logs()
        before = len(browser.requests)
        try:
            browser.open("health", f"http://{rack.metrics}")
            checks = lambda: {row[1]: row for row in browser.rows("Checks")}
            expected = {"spare": "no spare is listed", "copies": "one switch a chain", "snapshots": "taken only when asked for"}
            says = lambda name, text: checks().get(name, ["", "", ""])[2].startswith(text)
            for name, text in expected.items():
                check(f"{name}: what isn't to be is said", eventually(lambda: says(name, text)), checks())
                check("and is well", checks()[name][0] == "well", checks()[name])
            browser.driver.get("about:blank")
            browser.read_logs()
            del browser.requests[before:]
        finally:
            rack.close()


def layers_and_chains_are_drawn(browser):
    """Two chains of two layers, and a spare of each layer."""
    with temporary() as directory:
        shape = Shape(scheme="distreach", layers=2, chains=2)
        rack = Rack(directory, shape=shape, switch_timeout_ms=3000)
        load = Load(rack.resp)
        browser.read_logs()
        before = len(browser.requests)
        try:
            check("a load runs in layers", eventually(lambda: load.batches > 0))
            browser.open("rack", f"http://{rack.metrics}")
            places = lambda: browser.driver.execute_script(
                "return [...document.querySelectorAll('svg.rack g[data-chain]')].map((it) => ["
                "it.dataset.chain, it.firstElementChild.getAttribute('y'),"
                "it.firstElementChild.getAttribute('x')])")
            check("four switches serve, two a chain", eventually(
                lambda: sorted(chain for chain, *_ in places()) == ["0", "0", "1", "1"]), places())
            drawn = places()
            rows, columns = {place[1] for place in drawn}, {place[2] for place in drawn}
            check("chains are rows, layers are columns", len(rows) == len(columns) == 2
                  and len({tuple(place[:2]) for place in drawn}) == 2, drawn)
            # To the gateway, the first switches, and from each of them to the next.
            flows = lambda: len(browser.find("svg.rack path.flow:not(.node)"))
            check("requests pass a switch of each layer", eventually(lambda: flows() == 5), flows())
            label = lambda: browser.find("svg.rack")[0].get_attribute("aria-label")
            known = lambda: re.findall(r"switch \d of chain [01]: \d", label())
            check("each switch's own load is said", eventually(lambda: len(known()) == 4), label())
            boxes = lambda: browser.text("svg.rack g:not([data-chain])")
            check("spares stand apart", boxes().count("spare") == 2, boxes())
            check("an equal share is drawn of what isn't known", a_share(browser) == [
                [[0, 50], [1, 50]], [[2, 50]], False, [[], [3]]], a_share(browser))
            browser.driver.get("about:blank")
            browser.read_logs()
            inside = ("data:", "about:", "chrome:", f"http://{rack.metrics}/")
            outside = [url for url in browser.requests[before:] if not url.startswith(inside)]
            check("no request leaves that rack's origin", not outside, outside)
            del browser.requests[before:]
        except Exception:
            rack.logs()
            raise
        finally:
            load.end()
            rack.close()


def a_share(browser):
    """How the page arranges a chain of two switches, one of a switch, and another that is down."""
    switches = [{"index": index, "layer": layer, "chain": chain, "active": True, "alive": alive}
                for index, layer, chain, alive in [
                    (1, 2, 0, True), (2, 2, 1, True), (0, 1, 0, True), (3, 2, 1, False)]]
    loads = [{"index": 0, "requests_per_s": 7}, {"index": 1, "requests_per_s": None}]
    return browser.driver.execute_async_script(
        "const [switches, loads, done] = arguments;"
        "import(new URL('console/chains.js', location.href)).then(({ arrange }) => {"
        "  const { chains, apart, is_known } = arrange(switches, loads, 100);"
        "  done([...chains.map((members) => members.map((it) => [it.index, it.load])), is_known,"
        "    apart.map((others) => others.map((it) => it.index))]);"
        "})", switches, loads)


def little_is_loaded(browser):
    browser.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    # Not from a page of the console: that would only change the hash, and load nothing.
    browser.driver.get("about:blank")
    browser.open("rack")
    browser.shows("svg.rack")
    loaded = browser.driver.execute_script(
        "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".filter((it) => it.entryType === 'navigation' || it.name.includes('/console/')).map((it) => [it.name, it.transferSize])")
    bytes_loaded = sum(size for _, size in loaded)
    print(f"{bytes_loaded} bytes in {len(loaded)} files")
    check("less than 200 kB are loaded", 50_000 < bytes_loaded < BYTES_MAX, loaded)


def test():
    with temporary() as directory:
        more = '[console]\naccess = "control"\n'
        # No switch is taken for dead since a busy machine lets it wait.
        rack = Rack(directory, more, gateway='password = "hunter2"\n', switch_timeout_ms=1500)
        load = Load(rack.resp, "hunter2")
        browser = Browser(f"http://{rack.metrics}")
        try:
            a_planted_key_is_first(browser, load)
            all_parts_are_shown(browser)
            keys_alone_suffice(browser)
            bars_equal_the_status(browser, rack)
            health_is_shown(browser, rack)
            other_nodes_are_tried(browser)
            axe_finds_nothing(browser)
            a_trace_is_played(browser, directory)
            commands_need_the_token(browser, rack)
            little_is_loaded(browser)
            it_works_behind_a_proxy(browser, rack)
            what_is_not_to_be_is_not_missed(browser)
            layers_and_chains_are_drawn(browser)
            browser.read_logs()
            inside = ("data:", "about:", "chrome:", f"{browser.origin}/")
            outside = [url for url in browser.requests if not url.startswith(inside)]
            check("no request leaves the origin", len(browser.requests) > 50 and not outside,
                  outside)
            # While the switch was dead, too.
            check("no script fails", not browser.errors, browser.errors)
        except Exception:
            rack.logs()
            raise
        finally:
            browser.close()
            load.end()
            rack.close()
        the_demo_has_a_button(directory)
    finish()


def picture(browser, page, scheme, holds):
    """Writes a picture of a page as it is shown, as high as what is on it."""
    browser.colours(scheme)
    browser.go(page)
    eventually(holds)
    time.sleep(2.5)
    height = browser.driver.execute_script(
        "return document.querySelector('main').getBoundingClientRect().bottom")
    browser.driver.set_window_size(1280, min(1100, max(500, int(height) + 140)))
    time.sleep(1.5)
    name = page.split("?")[0]
    browser.driver.save_screenshot(os.path.join(SCREENSHOTS, f"{name}.png"))


def pictures():
    os.makedirs(SCREENSHOTS, exist_ok=True)
    with temporary() as directory:
        rack = Rack(directory)
        load = Load(rack.resp)
        time.sleep(45)
        load.planted = "user:77"
        time.sleep(15)
        killed = serving(rack)
        rack.kill(killed)
        time.sleep(15)
        rack.start(killed)
        time.sleep(30)
        browser = Browser(f"http://{rack.metrics}")
        browser.driver.set_window_size(1280, 1000)
        browser.open("rack")
        try:
            time.sleep(10)
            picture(browser, "rack", "light", lambda: browser.rows("Hottest keys"))
            picture(browser, "heat?seconds=225", "dark", lambda: browser.rows("Hottest ranges"))
            picture(browser, "keys", "light", lambda: browser.rows("Hottest keys"))
            picture(browser, "cache", "light", lambda: browser.rows("Records"))
            picture(browser, "nodes?records=16", "dark", lambda: browser.rows("Nodes"))
            picture(browser, "timeline", "light", lambda: browser.find("dl.steps"))
            picture(browser, "health", "light", lambda: browser.rows("Settings in force"))
            trace = os.path.join(directory, "trace.json")
            for seed in range(200):
                run = [PROGRAM, "lab", "sim", "--seed", str(seed), "--scheme", "farreach",
                       "--ablate", "no-fence", "--trace", trace]
                if subprocess.run(run, stdout=subprocess.DEVNULL).returncode:
                    break
            browser.go("lab")
            browser.shows("input[type=file]")
            browser.find("input[type=file]")[0].send_keys(trace)
            picture(browser, "lab", "dark", lambda: browser.rows("Events around the chosen one"))
        finally:
            browser.close()
            load.end()
            rack.close()


pictures() if SCREENSHOTS else test()
