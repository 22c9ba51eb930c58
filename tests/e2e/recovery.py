"""How long a recovery keeps records away, on a rack of processes under load: the owner of a chain
is killed with 10,000 records of its chain that no node has, and the clock runs until all of them
have been read and are right.

    make build && python3 tests/e2e/recovery.py         # ten kills; --help says what else there is

Times are printed, not judged: it fails only if a value is wrong or doesn't come. crash.py makes one
such kill.
"""

import argparse
import collections
import io
import json
import multiprocessing
import os
import random
import statistics
import threading
import time
import urllib.request

from checks import PATIENCE_S, eventually
from rack import Client, Failed, Rack, Shape, temporary

SHAPE = Shape("distreach", layers=2, chains=2, spares=1, nodes=4)
RECORDS, RATE, KILLS = 10_000, 5000, 10
# With as many partitions as nodes a key's node tells its chain. Nothing but the recovery stores
# what is dirty. A death is noticed by its connections; a busy machine mustn't make it seem that
# another one died.
SETTINGS = {
    "rack": f"partitions = {SHAPE.nodes}\n",
    "cache": "dirty_max_ms = 0\n",
    "switch_timeout_ms": 1500,
}
VALUE_BYTES = 128
# Connections that read what was cached.
READERS = 4


def command(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Load:
    """A process that asks for other keys at a steady rate, half reads and half writes, whether or
    not answers come."""

    KEYS, STEP_S, CONNECTIONS = 2000, 0.01, 4

    def __init__(self, address, rate):
        self.answered, self.stopping = multiprocessing.Value("q", 0), multiprocessing.Event()
        self.process = multiprocessing.Process(target=self.work, args=(address, rate), daemon=True)
        self.process.start()

    def work(self, address, rate):
        connections = [Client(address) for _ in range(self.CONNECTIONS)]
        counts = [0] * self.CONNECTIONS

        def drain(at):
            while True:
                try:
                    connections[at].answer()
                except Failed:
                    pass
                counts[at] += 1

        for at in range(self.CONNECTIONS):
            threading.Thread(target=drain, args=(at,), daemon=True).start()
        due, steps, value = time.monotonic(), 0, "x" * VALUE_BYTES
        while not self.stopping.wait(max(0.0, due - time.monotonic())):
            due, steps = due + self.STEP_S, steps + 1
            keys = [f"load:{random.randrange(self.KEYS)}" for _ in range(round(rate * self.STEP_S))]
            batch = [command("SET", key, value) if random.random() < 0.5 else command("GET", key)
                     for key in keys]
            connections[steps % self.CONNECTIONS].socket.sendall(b"".join(batch))
            self.answered.value = sum(counts)
        os._exit(0)

    def stop(self):
        self.stopping.set()
        self.process.join()


class Reader:
    """A connection that reads many keys at once."""

    END = b"+PONG\r\n"

    def __init__(self, address):
        self.client = Client(address, timeout_s=PATIENCE_S)

    def read(self, pairs):
        """Those pairs of key and value that aren't read yet, after a failure, and those whose value
        is wrong."""
        requests = b"".join(command("GET", key) for key, _ in pairs) + command("PING")
        right = b"".join(b"$%d\r\n%s\r\n" % (len(value), value) for _, value in pairs) + self.END
        self.client.socket.sendall(requests)
        got = bytearray()
        while not got.endswith(self.END):
            more = self.client.socket.recv(1 << 20)
            if not more:
                raise ConnectionError("the connection ended")
            got += more
        # Only what isn't right is taken apart: that takes longer than to receive it.
        return ([], []) if got == right else self.differences(got, pairs)

    def differences(self, got, pairs):
        self.client.file = io.BytesIO(got)
        failed, wrong = [], []
        for key, value in pairs:
            try:
                answer = self.client.answer()
            except Failed:
                failed.append((key, value))
                continue
            if answer != value:
                wrong.append(f"{key} has {answer}")
        return failed, wrong


def read_all(readers, pairs):
    """Reads all pairs of key and value, what fails again. What is wrong."""
    wrong, end = [], time.monotonic() + PATIENCE_S

    def read(reader, left):
        while left:
            left, more = reader.read(left)
            wrong.extend(more)
            if left and time.monotonic() > end:
                wrong.append(f"{len(left)} records don't come within {PATIENCE_S} s")
                return

    parts = [(reader, pairs[at::len(readers)]) for at, reader in enumerate(readers)]
    threads = [threading.Thread(target=read, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def told(rack, path):
    with urllib.request.urlopen(f"http://{rack.metrics}{path}", timeout=PATIENCE_S) as answer:
        return json.load(answer)


def until(what, holds):
    """Waits for something, and returns it."""
    it = eventually(holds)
    if not it:
        raise SystemExit(f"FAILED: not within {PATIENCE_S} s: {what}")
    return it


def is_whole(rack):
    """Whether all chains serve with a switch of each layer, and all switches live."""
    chains, switches = told(rack, "/chains"), told(rack, "/switches")
    serve = all(its["phase"] == "serving" and len(its["switches"]) == rack.shape.layers
                for its in chains)
    alive = all(its["alive"] for its in switches)
    return serve and alive and len(switches) == len(rack.shape.switch_names())


def cached(rack):
    """The keys that are cached now, of each chain; whether a node lacks what the cache has of
    it."""
    chains = {its["replicas"][0]: its["chain"] for its in told(rack, "/partitions")}
    keys = collections.defaultdict(dict)
    for its in told(rack, "/cached?limit=1000000")["records"]:
        if its["stage"] == "cached":
            keys[chains[its["node"]]][its["key"].encode()] = its["dirty"]
    return keys


def fill(rack, client, records):
    """Writes keys until `records` of one chain are cached. The chain, and that number of its
    keys."""
    keys = [b"hot:%06d" % i for i in range(records * rack.shape.chains * 21 // 20)]

    def filled():
        for _ in client.pipeline([[b"SET", key, b"cold"] for key in keys]):
            pass
        for chain, known in cached(rack).items():
            hot = [key for key in keys if key in known]
            if len(hot) >= records:
                return chain, hot[:records]
        return None

    return until(f"{records} keys of a chain are cached", filled)


def absorb(client, pairs):
    """Writes pairs of key and value until each is acknowledged."""
    left = pairs

    def written():
        nonlocal left
        answers = list(client.pipeline([[b"SET", key, value] for key, value in left]))
        left = [pair for pair, answer in zip(left, answers) if answer != "OK"]
        return not left

    until("all records are written", written)


def kill_owner(rack, number, records=RECORDS):
    """Kills the owner of a chain that has `records` dirty records. What became of them, and how
    long it took to read them all, before the kill and since."""
    client = Client(rack.resp, timeout_s=PATIENCE_S)
    readers = [Reader(rack.resp) for _ in range(READERS)]
    until("every chain has its switches", lambda: is_whole(rack))
    chain, keys = fill(rack, client, records)
    pairs = [(key, (b"%d:%s:" % (number, key)).ljust(VALUE_BYTES, b".")) for key in keys]
    absorb(client, pairs)
    began = time.monotonic()
    wrong = read_all(readers, pairs)
    before_s = time.monotonic() - began
    has = cached(rack)[chain]
    dirty = sum(bool(has.get(key)) for key in keys)
    owner = next(its["switch"] for its in told(rack, "/chains") if its["chain"] == chain)
    began = time.monotonic()
    rack.kill(f"switch {owner}")
    wrong += read_all(readers, pairs)
    read_s = time.monotonic() - began
    recovery = until("the recovery is complete", lambda: is_complete(told(rack, "/status")))
    for connection in [client, *(reader.client for reader in readers)]:
        connection.close()
    if dirty < records or recovery["records"] < records:
        wrong.append(
            f"only {dirty} of {records} records were dirty, only {recovery['records']} were stored")
    rack.start(f"switch {owner}")
    rack.parts[f"switch {owner}"].wait_ready()
    times = {"before_s": before_s, "read_s": read_s}
    return {"chain": chain, "owner": owner, "recovery": recovery, "wrong": wrong} | times


def is_complete(status):
    recovery = status["recovery"]
    return recovery and recovery["complete"] and status["phase"] == "serving" and recovery


def main():
    parser = argparse.ArgumentParser(
        description="Kills the owner of a chain that has records which no node has.")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--records", type=int, default=RECORDS, help="of the chain, dirty")
    parser.add_argument("--rate", type=int, default=RATE, help="requests a second for other keys")
    args = parser.parse_args()
    steps = ["detect", "collect", "store", "readmit"]
    print(f"{SHAPE.layers} layers, {SHAPE.chains} chains, {args.records} records dirty, {args.rate} requests/s; ms")
    # Of the recovery its steps; then how long it took to read all records just before the kill, and
    # since the kill.
    print("kill  chain  owner  " + "  ".join(f"{step:>7}" for step in steps)
          + "  before  all read  load/s")
    times, wrong = [], []
    with temporary() as directory:
        rack = Rack(directory, shape=SHAPE, **SETTINGS)
        load = Load(rack.resp, args.rate)
        try:
            for number in range(args.kills):
                answered, began = load.answered.value, time.monotonic()
                found = kill_owner(rack, number, args.records)
                rate = (load.answered.value - answered) / (time.monotonic() - began)
                split = "  ".join(f"{found['recovery'][step + '_seconds'] * 1000:7.0f}"
                                  for step in steps)
                times.append(found["read_s"] * 1000)
                wrong += found["wrong"]
                who = f"{number:4}  {found['chain']:5}  {found['owner']:5}"
                print(f"{who}  {split}  {found['before_s'] * 1000:6.0f}  {times[-1]:8.0f}  {rate:6.0f}", flush=True)
        except BaseException:
            rack.logs()
            raise
        finally:
            load.stop()
            rack.close()
    median, least, most = statistics.median(times), min(times), max(times)
    print(f"all read after {median:.0f} ms, the median of {len(times)} kills; {least:.0f} to {most:.0f} ms")
    for line in wrong[:10]:
        print(f"FAILED: {line}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
