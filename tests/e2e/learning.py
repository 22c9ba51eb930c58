"""What learning must not break (docs/understand/learning.md, "What it may cost"): beside a pass
over all keys, and beside an attacker who asks for a new key at each request, the cache answers as
many requests for popular keys as before, and new keys cost no more offers and admissions than are
allowed.

Everything is counted, in requests and by the rack's own metrics, so that a slow machine sees the
same. Only what is allowed grows with time, as `admissions_per_s` says. Run by learning.sh;
LEARNING_SEED says in which order (any).
"""

import os
import random
import re
import sys
import time
import urllib.request

from checks import PATIENCE_S
from rack import Client, Process, temporary

SEED = int(os.environ.get("LEARNING_SEED", random.randrange(1_000_000)))
# How much of the hit ratio other keys may cost.
LOSS_MAX = 0.02
# How often the agent fills the pipeline's offers (`period_us` in
# crates/core/src/switch/learning.rs).
PERIOD_S = 0.005
VALUE = b"v" * 100


class Up:
    """`switchback up`, and a client of it. As a context it ends with the block: in order, unless
    the block failed."""

    def __init__(self, directory, cache):
        self.config = os.path.join(directory, "rack.toml")
        self.log = os.path.join(directory, "up.log")
        with open(self.config, "w") as file:
            # A request that is sent again would be counted twice, and in memory no packet is lost.
            # A switch that a busy machine lets wait isn't taken for dead: its cache would be lost.
            file.write(f"""
[rack]
metrics = "127.0.0.1:0"
switch_timeout_ms = 10000
[cache]
{cache}
[nodes]
count = 2
sync = "none"
[gateway]
resp = "127.0.0.1:0"
workers = 1
durability = "memory"
[client]
deadline_ms = 60000
retry_ms = [60000, 60000]
""")

    def __enter__(self):
        self.process = Process("up", "up", "--config", self.config, log=self.log)
        addresses = self.process.wait_ready()
        self.metrics, self.client = addresses["metrics"], Client(addresses["resp"])
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            assert self.process.stop() == 0, "the rack doesn't stop"
        else:
            self.process.kill()
            print(open(self.log).read()[-4000:], file=sys.stderr)

    def write(self, keys):
        self.run([[b"SET", key, VALUE] for key in keys], {"OK"})

    def read(self, keys, answers={VALUE}):
        self.run([[b"GET", key] for key in keys], answers)

    def run(self, commands, answers):
        for answer in self.client.pipeline(commands):
            assert answer in answers, answer

    def learn(self, keys):
        """Reads these keys until all of them are cached."""
        until = time.monotonic() + PATIENCE_S
        while self.counted().cached < len(keys):
            assert time.monotonic() < until, "popular keys aren't cached"
            self.read(keys)
        # The first read of a cached key makes its record latest.
        self.read(keys)

    def settled(self):
        """What is counted once the nodes, which say it now and then, have counted each offer that
        came of them."""
        until = time.monotonic() + PATIENCE_S
        while (counted := self.counted()).offered < counted.admitted + counted.declined:
            assert time.monotonic() < until, "more keys were admitted or declined than offered"
            time.sleep(0.05)
        return counted

    def counted(self):
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=PATIENCE_S) as answer:
            return Counted(answer.read().decode())


class Counted:
    """What the rack had counted at one moment."""

    def __init__(self, text):
        self.text = text
        self.by_cache = self.total("switchback_switch_answers_total", 'verb="read",by="switch"')
        self.reads = self.by_cache + self.total("switchback_switch_answers_total",
                                                'verb="read",by="node"')
        self.told = self.total("switchback_hot_misses_total")
        self.offered = self.total("switchback_node_offers_total")
        self.admitted = self.total("switchback_admissions_total")
        self.declined = self.total("switchback_declined_offers_total")
        self.cached = self.total("switchback_cached_keys")

    def total(self, name, labels=""):
        """The sum of a metric's samples whose labels contain this text."""
        samples = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", self.text, re.MULTILINE)
        assert samples, f"no metric {name}"
        return sum(int(float(value)) for found, value in samples if labels in found)


def cost(up, asked, others, answers):
    """What other keys cost, asked for once each and evenly among requests for popular ones: the hit
    ratio of the latter without them and beside them."""
    before = up.counted()
    up.read(asked)
    began = up.counted()
    up.read(interleaved(asked, others), answers)
    ended = up.counted()
    without, beside = hit_ratio(before, began), hit_ratio(began, ended, len(others))
    print(f"{len(others)} other keys: {ended.told - began.told} told of, {ended.admitted - began.admitted} admitted, "
          f"{ended.declined - began.declined} declined; hit ratio {without:.4f} without, {beside:.4f} beside", flush=True)
    assert beside >= without - LOSS_MAX, "other keys cost too many hits"


def interleaved(keys, others):
    """The keys in their order, and the others evenly among them."""
    for place, key in enumerate(keys):
        yield key
        yield from others[len(others) * place // len(keys):len(others) * (place + 1) // len(keys)]


def hit_ratio(before, after, others=0):
    """The cache's share of the answers, but for those to other keys, which nodes gave."""
    return (after.by_cache - before.by_cache) / (after.reads - before.reads - others)


def named(prefix, count):
    return [b"%s:%06d" % (prefix, number) for number in range(count)]


def a_pass_over_all_keys(directory):
    """A cache that is full of popular keys, and a pass over all others: forty times as many as it
    holds."""
    popular, others = named(b"popular", 500), named(b"other", 20_000)
    # A sketch about as wide as the cache has records, as by default: other keys show in each key's
    # counters.
    cache = "records = 500\nclasses = [[128, 500]]\nsketch_width = 512"
    with Up(directory, cache) as up:
        up.write(popular + others)
    with Up(directory, cache) as up:
        up.learn(popular)
        # Until their counters are well above what other keys have in the sketch.
        up.read(popular * 40)
        draw = random.Random(SEED)
        draw.shuffle(others)
        cost(up, draw.choices(popular, k=5_000), others, {VALUE})


def new_keys(directory):
    """A cache that has room: each new key is hot at once, and only the limit keeps it away."""
    popular, others, per_s = named(b"popular", 400), named(b"new", 150_000), 200
    began_s = time.monotonic()
    with Up(directory,
            f"records = 65536\nclasses = [[128, 65536]]\nadmissions_per_s = {per_s}") as up:
        up.write(popular)
        up.learn(popular)
        cost(up, random.Random(SEED).choices(popular, k=20_000), others, {VALUE, None})
        all_of = up.settled()
        # The bucket holds the offers of two periods, and at least one; the pipeline has as many.
        allowed = per_s * (time.monotonic() - began_s) + 2 * max(1, per_s * 2 * PERIOD_S)
    print(f"since the start {allowed:.0f} allowed: {all_of.told} told of, "
          f"{all_of.offered} offered, {all_of.admitted} admitted, {all_of.declined} declined",
          flush=True)
    assert allowed < len(others) / 2, "too slow for the limit to be reached"
    assert len(popular) < all_of.told <= allowed, "more offers than are allowed"
    assert all_of.offered <= allowed, "more offers than are allowed"
    assert all_of.admitted + all_of.declined <= allowed, "more admissions than are allowed"


def main():
    print(f"LEARNING_SEED={SEED}")
    for test in (a_pass_over_all_keys, new_keys):
        with temporary() as directory:
            test(directory)


main()
