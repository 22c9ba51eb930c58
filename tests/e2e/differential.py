"""The script of the gateway's differential test (crates/gateway/tests/differential.script), which
there runs over a rack that is pretended, on real ones: in one process, and a process a part; over
keys that aren't cached, and that are. Each reply must be redis-server's, byte for byte. Run by
differential.sh.
"""

import os
import re
import socket
import subprocess
import urllib.request

from checks import check, eventually, finish
from rack import Process, free_addresses, running, temporary

SCRIPT = os.path.join(os.path.dirname(__file__), "../../crates/gateway/tests/differential.script")
# With these redis-server has the limits of Switchback, and DUMP compresses nothing.
LIKE_SWITCHBACK = ["--proto-max-bulk-len", "1mb", "--rdbcompression", "no", "--save", ""]


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


def compare(what, redis, gateway):
    with open(SCRIPT, encoding="utf-8") as file:
        lines = [line for line in file.read().split("\n") if line and not line.startswith("#")]
    for version in (b"2", b"3"):
        theirs, ours = Raw(redis), Raw(gateway)
        for connection in (theirs, ours):
            connection.call([b"HELLO", version])
            connection.call([b"FLUSHALL"])
        differing = []
        for line in lines:
            asked = list(words(line))
            wanted, got = theirs.call(asked), ours.call(asked)
            if asked[0] == b"SCAN" and wanted[:1] == got[:1] == b"*":
                wanted, got = scanned(theirs, asked[2:], wanted), scanned(ours, asked[2:], got)
            if not agree(line, got, wanted):
                differing.append(f"{line[:200]}: {str(got)[:200]} is not {str(wanted)[:200]}")
        name = f"{what}, RESP{version.decode()}: {len(lines)} commands are answered as by redis-server"
        check(name, not differing, "\n".join(differing[:20]))


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
        config = os.path.join(directory, "rack.toml")
        with open(config, "w") as file:
            file.write(
                f'[rack]\ndata = "{directory}/data"\nmetrics = "127.0.0.1:0"\n'
                '[gateway]\nresp = "127.0.0.1:0"\ntransactions = "batch"\n'
            )
        rack = Process("up", "up", "--config", config, log=os.path.join(directory, "log"))
        ready = rack.wait_ready()
        compare("a rack in one process", redis_address, ready["resp"])
        # The same keys once more, which are hot by now.
        check("keys are cached", eventually(lambda: cached(ready["metrics"])))
        compare("its cache has keys", redis_address, ready["resp"])
        check("the rack ends with 0", rack.stop() == 0)
        with running(gateway='transactions = "batch"\n') as processes:
            compare("a process a part", redis_address, processes.resp)
    finally:
        redis.kill()
        redis.wait()
finish()
