"""The scripts of the gateway's differential tests (crates/gateway/tests/all/*.script), which there run
over a rack that is pretended, on real ones: in one process, and a process a part; over keys that
aren't cached, and that are. Each reply must be redis-server's, byte for byte. Run by
differential.sh.
"""

import os
import re
import socket
import subprocess
import urllib.request

from checks import check, eventually, finish
from rack import Process, free_addresses, running, temporary

SCRIPTS = os.path.join(os.path.dirname(__file__), "../../crates/gateway/tests/all")
# With these redis-server has the limits of Switchback, and DUMP compresses nothing.
LIKE_SWITCHBACK = ["--proto-max-bulk-len", "1mb", "--rdbcompression", "no", "--save", "",
                   "--databases", "1"]


class Raw:
    """A connection that gives replies as they are."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.file = self.socket.makefile("rb")

    def call(self, words):
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, length = line[:1], line[1:-2]
        if kind in b"$=" and int(length) >= 0:
            return line + self.file.read(int(length) + 2)
        if kind in b"*~>%":
            items = int(length) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(items))
        return line


def words(line):
    """`|` stands for an empty word, `~n~` for n bytes of x."""
    for word in line.split(" "):
        many = re.fullmatch(r"~(\d+)~", word)
        yield b"x" * int(many[1]) if many else b"" if word == "|" else word.encode()


def commands(line):
    """The words of a line of differential.script."""
    return 0, list(words(line))


def by_two(line):
    """Of transactions.script: what begins with @ is another connection's."""
    return int(line.startswith("@ ")), list(words(line.removeprefix("@ ")))


def of_scripts(line):
    """Of scripts.script: keys and arguments, ` :: `, and the text; or `! ` and a command."""
    if line.startswith("! "):
        said = [word.replace("~", " ").replace("^", "\n") for word in line[2:].split(" ")]
    else:
        arguments, text = line.split(" :: ", 1)
        said = ["EVAL", text, *arguments.split(" ")]
    return 0, [word.encode() for word in said]


# With what of `transactions` each script is answered as by redis-server.
ASKED = {
    "differential.script": (commands, ["batch"]),
    "transactions.script": (by_two, ["refuse", "batch"]),
    "scripts.script": (of_scripts, ["refuse", "batch"]),
}


def agree(line, got, wanted):
    """What is left of a time may be some seconds less on the slower side."""
    if line.startswith("TTL ") and got[:1] == wanted[:1] == b":":
        return abs(int(got[1:]) - int(wanted[1:])) <= 15
    return got == wanted


def scanned(connection, arguments, reply):
    """What a whole scan finds that began with this reply: where a rack's pages end is its own
    business."""
    found = []
    while True:
        # *2, $n, the cursor, *m, and for each key its length and the key.
        parts = reply.split(b"\r\n")
        found += parts[5:-1:2]
        if parts[2] == b"0":
            return sorted(found)
        reply = connection.call([b"SCAN", parts[2], *arguments])


def in_time(connection, asked):
    """What a gateway answers. A script that takes longer on a busy machine than it may has changed
    nothing, and is asked again."""
    for _ in range(100):
        reply = connection.call(asked)
        if b"ran for more than 5 ms; nothing was changed" not in reply:
            break
    return reply


def compare(what, redis, gateway, transactions):
    for script, (read, settings) in ASKED.items():
        if transactions not in settings:
            continue
        with open(os.path.join(SCRIPTS, script), encoding="utf-8") as file:
            lines = [line for line in file.read().split("\n") if line and not line.startswith("#")]
        for version in (b"2", b"3"):
            differing = differences(redis, gateway, version, lines, read)
            name = f"{what}, {script}, RESP{version.decode()}: {len(lines)} lines as by redis-server"
            check(name, not differing, "\n".join(differing[:20]))


def differences(redis, gateway, version, lines, read):
    theirs, ours = [Raw(redis), Raw(redis)], [Raw(gateway), Raw(gateway)]
    for one, other in (theirs, ours):
        one.call([b"FLUSHALL"])
        one.call([b"SCRIPT", b"FLUSH"])
        for connection in (one, other):
            connection.call([b"HELLO", version])
    differing = []
    for line in lines:
        by, asked = read(line)
        wanted, got = theirs[by].call(asked), in_time(ours[by], asked)
        if asked[0] == b"SCAN" and wanted[:1] == got[:1] == b"*":
            wanted, got = scanned(theirs[by], asked[2:], wanted), scanned(ours[by], asked[2:], got)
        if not agree(line, got, wanted):
            differing.append(f"{line[:200]}: {str(got)[:200]} is not {str(wanted)[:200]}")
    return differing


def cached(metrics):
    """Keys in the cache."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as told:
        return int(
            re.search(r"^switchback_cached_keys (\d+)$", told.read().decode(), re.MULTILINE)[1])


with temporary() as directory:
    (redis_address,) = free_addresses(1)
    host, port = redis_address.rsplit(":", 1)
    redis = subprocess.Popen(
        ["redis-server", "--bind", host, "--port", port, "--dir", directory, *LIKE_SWITCHBACK],
        stdout=subprocess.DEVNULL,
    )
    try:
        def answers():
            try:
                return Raw(redis_address).call([b"PING"]) == b"+PONG\r\n"
            except OSError:
                return False

        check("redis-server answers", eventually(answers))
        for transactions in ("refuse", "batch"):
            config = os.path.join(directory, f"{transactions}.toml")
            with open(config, "w") as file:
                file.write(
                    f'[rack]\ndata = "{directory}/{transactions}"\nmetrics = "127.0.0.1:0"\n'
                    f'[gateway]\nresp = "127.0.0.1:0"\ntransactions = "{transactions}"\n'
                )
            rack = Process("up", "up", "--config", config, log=os.path.join(directory, "log"))
            ready = rack.wait_ready()
            name = f'"{transactions}", one process'
            compare(name, redis_address, ready["resp"], transactions)
            # The same keys once more, which are hot by now.
            check("keys are cached", eventually(lambda: cached(ready["metrics"])))
            compare(f"{name}, keys cached", redis_address, ready["resp"], transactions)
            check("the rack ends with 0", rack.stop() == 0)
            with running(gateway=f'transactions = "{transactions}"\n') as processes:
                name = f'"{transactions}", a process a part'
                compare(name, redis_address, processes.resp, transactions)
    finally:
        redis.kill()
        redis.wait()
finish()
