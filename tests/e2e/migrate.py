"""`switchback import` and `export`: what a redis-server has, a rack has, and another redis-server
again."""

import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from checks import PATIENCE_S, PROGRAM, check, eventually, finish
from rack import Client, Failed, Process, free_addresses, kill_midway

KEYS = 30_000
# The exit code of an import that has copied all strings, since the source has lists, too.
LEFT_OUT = 3
# Where an import writes how far it is.
STATE = "switchback-import.json"
random.seed(1)


class Redis:
    """A redis-server of its own."""

    def __init__(self, directory, address, *more):
        os.makedirs(directory, exist_ok=True)
        host, port = address.rsplit(":", 1)
        self.process = subprocess.Popen(
            ["redis-server", "--port", port, "--bind", host, "--dir", directory, "--save", "",
             *more],
            stdout=subprocess.DEVNULL)
        assert eventually(lambda: self.answers(address)), "redis-server doesn't start"

    @staticmethod
    def answers(address):
        try:
            return Client(address).run("PING") == "PONG"
        except (OSError, Failed):
            return False  # it doesn't listen yet, or it still loads its file

    def end(self):
        self.process.kill()
        self.process.wait()


def content(address):
    """Every string with the time at which it expires, in ms of this test's clock, or None."""
    client = Client(address)
    keys = sorted(client.keys())
    values = client.pipeline([(b"GET", key) for key in keys])
    values = list(values)
    ends = [None if ttl == -1 else ttl + 1000 * time.monotonic()
            for ttl in client.pipeline([(b"PTTL", key) for key in keys])]
    return {key: (value, end) for key, value, end in zip(keys, values, ends)
            if isinstance(value, bytes)}


def differences(one, other):
    """Keys that differ: in value, or by more than half a minute in when they expire."""
    def close(a, b):
        return a is None and b is None or a is not None and b is not None and abs(a - b) < 30_000

    return [key for key in sorted(set(one) | set(other))
            if key not in one or key not in other
            or one[key][0] != other[key][0] or not close(one[key][1], other[key][1])]


def fill(address):
    client = Client(address)
    commands = []
    for at in range(KEYS):
        key = b"key:%d" % at if at % 100 else b"\x00\xff\r\n%d" % at
        value = random.randbytes(
            random.choice([0, 1, 12, 70, 128, 400] + [20_000] * (at % 97 == 0)))
        if at % 7 == 0:
            value = b"%d" % random.randint(-2**63, 2**63 - 1)
        commands.append((b"SET", key, value)
                        + ((b"PX", b"%d" % random.randint(600_000, 10**10)) if at % 3 == 0 else ()))
    for at in range(50):
        commands.append((b"RPUSH", b"list:%d" % at, b"x"))
    for answer in client.pipeline(commands):
        assert not isinstance(answer, Exception), answer


def run(directory, *arguments):
    return subprocess.run([PROGRAM, *arguments], cwd=directory, capture_output=True, text=True,
                          timeout=300)


def stage(directory):
    """How far an import is, by its file: the stage, and whether a part of it is done; `None`: there is no file."""
    try:
        state = json.loads(Path(directory, STATE).read_text())
    except FileNotFoundError:
        return None
    return state["stage"], state["cursor"] != 0


def start_import(directory, *arguments):
    return subprocess.Popen([PROGRAM, "import", *arguments], cwd=directory, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed_at(directory, place, *arguments):
    """Starts an import, and kills it with -9 at this place; what it has said on stderr, `None` if it wasn't there."""
    process, is_there = start_import(directory, *arguments), False
    end = time.monotonic() + PATIENCE_S
    while process.poll() is None and not is_there and time.monotonic() < end:
        is_there = stage(directory) == place
        time.sleep(0.0005)
    process.kill()
    _, said = process.communicate()
    return said if is_there and process.returncode == -signal.SIGKILL else None


class Writers(threading.Thread):
    """Changes keys of a server, without end: sets, counts, expires and deletes."""

    def __init__(self, address):
        super().__init__(daemon=True)  # A test that fails ends all the same.
        self.client, self.stopping, self.count = Client(address), threading.Event(), 0

    def run(self):
        draw = random.Random(2)
        while not self.stopping.is_set():
            key = f"key:{draw.randrange(KEYS)}" if draw.random() < 0.8 else f"new:{draw.randrange(2000)}"
            what = draw.choice(["SET", "SET", "DEL", "EXPIRE", "PEXPIRE", "PERSIST", "RENAME"])
            try:
                if what == "SET":
                    self.client.run("SET", key, draw.randbytes(64), "KEEPTTL")
                elif what == "EXPIRE":
                    self.client.run("EXPIRE", key, 100_000)
                elif what == "PEXPIRE":
                    self.client.run("PEXPIRE", key, 20)
                elif what == "RENAME":
                    self.client.run("RENAME", key, f"moved:{draw.randrange(2000)}")
                else:
                    self.client.run(what, key)
            except Exception as error:
                if "no such key" not in str(error):
                    raise
            self.count += 1

    def go_on(self, count=1000):
        """Whether there are as many more changes before long."""
        before = self.count
        return eventually(lambda: self.count >= before + count)

    def stop(self):
        self.stopping.set()
        self.join()


class Forgetful(threading.Thread):
    """Passes on what one client and a gateway say to each other, but for the answers to some
    writes: those it turns into what a gateway says that had no answer in time. They have happened
    all the same."""

    WORDS = b"-INDETERMINATE the write may or may not have happened\r\n"

    def __init__(self, gateway, answers):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        host, port = gateway.rsplit(":", 1)
        self.gateway, self.answers = (host, int(port)), answers
        self.start()

    def run(self):
        client, gateway = self.listener.accept()[0], socket.create_connection(self.gateway)
        threading.Thread(target=self.carry, args=(client, gateway, lambda said: said),
                         daemon=True).start()
        self.carry(gateway, client, self.forget)

    def forget(self, said):
        # An answer that two reads share passes as it is.
        count = min(self.answers, said.count(b"+OK\r\n"))
        self.answers -= count
        return said.replace(b"+OK\r\n", self.WORDS, count)

    @staticmethod
    def carry(one, other, change):
        try:
            while said := one.recv(1 << 16):
                other.sendall(change(said))
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the client has ended


def certificates(directory, host):
    """A CA, and certificates of it for a server on this host and for a client, beside another CA
    (stranger)."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl = lambda *arguments: subprocess.run(["openssl", *arguments], cwd=directory, check=True,
                                                capture_output=True)
    for ca in ("ca", "stranger"):
        openssl("req", "-x509", *new_key, "-days", "30", "-subj", f"/CN={ca}", "-keyout",
                f"{ca}.key", "-out", f"{ca}.crt")
    Path(directory, "names").write_text(f"subjectAltName=IP:{host}")
    for name in ("server", "client"):
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "30", "-extfile", "names", "-out", f"{name}.crt")


def over_tls(directory, resp):
    """The same from a redis-server that asks its clients for certificates, as managed ones do."""
    plain, secure = free_addresses(2)
    certificates(directory, secure.rsplit(":", 1)[0])
    redis = Redis(f"{directory}/secure", plain, "--tls-port", secure.rsplit(":", 1)[1],
                  "--tls-auth-clients", "yes",
                  *(word for option, file in [("cert", "server.crt"), ("key", "server.key"),
                                              ("ca-cert", "ca.crt")]
                    for word in (f"--tls-{option}-file", f"{directory}/{file}")))
    fill(plain)
    Client(resp).insist("FLUSHALL")
    ours = ["--cert", "client.crt", "--key", "client.key"]
    import_from = lambda url, *more: run(directory, "import", "--from", url,
                                         "--to", f"redis://{resp}", *more)
    done = import_from(f"rediss://{secure}", "--cacert", "ca.crt", *ours)
    check("an import over TLS", done.returncode == LEFT_OUT, done.stdout + done.stderr)
    differ = differences(content(plain), content(resp))
    check("the rack has what the source has", not differ, differ[:5])

    Client(resp).insist("FLUSHALL")
    follow = start_import(directory, "--from", f"rediss://{secure}", "--to", f"redis://{resp}", "--cacert", "ca.crt", *ours,
                          "--follow")
    notifies = lambda: b"E" in Client(plain).run("CONFIG", "GET", "notify-keyspace-events")[1]
    check("it follows over TLS", eventually(notifies))
    Client(plain).run("SET", "late", "1")
    strings = Client(plain).run("DBSIZE") - 50
    check("all is copied, the change too", eventually(
        lambda: Client(resp).run("GET", "late") == b"1"
        and Client(resp).insist("DBSIZE") >= strings))
    # Only a page or two of keys that are no strings may be left to scan, and it scans a page before
    # it takes changes.
    for change in [b"2", b"3", b"4", b"5"]:
        Client(plain).run("SET", "late", change)
        check("a change is copied", eventually(lambda: Client(resp).run("GET", "late") == change))
    follow.send_signal(signal.SIGINT)
    out, err = follow.communicate(timeout=120)
    check("and it ends", follow.returncode == LEFT_OUT, out + err)

    done = run(directory, "export", "--from", f"rediss://{secure}", "--to", "secure.rdb",
               "--cacert", "ca.crt", *ours)
    check("an export over TLS", done.returncode == 0 and Path(directory, "secure.rdb").exists(),
          done.stdout + done.stderr)

    for url, more, says in [
        (f"rediss://{secure}", ours, "UnknownIssuer"),
        (f"rediss://{secure}", ["--cacert", "stranger.crt", *ours], "UnknownIssuer"),
        (f"rediss://{secure}", ["--cacert", "ca.crt"], "it wants a certificate: --cert and --key"),
        (f"rediss://{resp}", ["--cacert", "ca.crt"], "it speaks no TLS there"),
        (f"rediss://{secure}", ["--cacert", "/dev/zero"], "it has more than 1 MiB"),
        (f"redis://{secure}", [], f"no connection to {secure}"),
        (f"redis://{plain}", ["--cacert", "ca.crt"], "none does"),
        (f"rediss://{secure}", ["--cacert", "none.crt"], "none.crt can't be read"),
        (f"rediss://{secure}", ["--cacert", "client.key"], "client.key has no certificate"),
        (f"rediss://{secure}/#insecure", [], "#insecure isn't taken"),
    ]:
        done = import_from(url, *more)
        check(f"refused with: {says}", done.returncode == 1 and done.stderr.count(says) == 1,
              done.stdout + done.stderr)
    redis.end()


def is_followed(source, resp):
    """Whether a change at the source comes to the rack."""
    late = b"%d" % time.monotonic_ns()
    Client(source).run("SET", "late", late)
    ours = Client(resp)
    return eventually(lambda: ours.insist("GET", "late") == late)


def following_through_kills(directory, source, resp):
    """An import that follows is killed while the source is written to; what the source does after that isn't told."""
    urls = ["--from", f"redis://{source}", "--to", f"redis://{resp}"]
    ours, theirs = Client(resp), Client(source)
    setting = lambda: Client(source).run("CONFIG", "GET", "notify-keyspace-events")[1]
    ours.insist("FLUSHALL")
    writers = Writers(source)
    writers.start()
    said = killed_at(directory, ("copying", True), *urls, "--follow", "--batch", "50")
    check("a following import is killed while it copies", said == "", said)
    check("there are changes that aren't told", writers.go_on())
    following = start_import(directory, *urls, "--follow")
    check("it copies all", eventually(lambda: stage(directory) == ("whole", False)))
    check("it follows, too", is_followed(source, resp) and writers.go_on())
    following.kill()
    _, said = following.communicate()
    check("it is killed while it follows", following.returncode == -signal.SIGKILL, said)
    check("it began with the first key, and says why",
          "this one begins with the first key: what was changed in between wasn't told" in said, said)
    check("it says what to do about deleted keys", "add --delete" in said, said)

    check("there are changes that aren't told", writers.go_on())
    writers.stop()
    # Keys that the rack has, too: the writers have left those of key: below KEYS, and this test has
    # the others.
    both = sorted(theirs.keys() & ours.keys())
    strings = [key for key, kind in zip(both, theirs.pipeline([(b"TYPE", key) for key in both])) if kind == "string"]
    deleted, expired, moved, listed, changed = (strings[at::5][:100] for at in range(5))
    check("there are keys to change", len(changed) == 100, len(changed))
    commands = [(b"DEL", key) for key in deleted] + [(b"PEXPIRE", key, b"1") for key in expired]
    commands += [(b"RENAME", key, b"elsewhere:" + key) for key in moved]
    commands += [command for key in listed for command in [(b"DEL", key), (b"RPUSH", key, b"x")]]
    commands += [(b"SET", key, b"changed") for key in changed] + [(b"SET", b"added:%d" % at, b"1") for at in range(100)]
    errors = [answer for answer in theirs.pipeline(commands) if isinstance(answer, Exception)]
    check("the source is changed while nothing follows", not errors, errors[:5])
    ours.insist("SET", "the rack's alone", "1")
    stale = {*deleted, *expired, *moved, *listed, b"the rack's alone"}
    differ = differences(content(source), content(resp))
    check("the rack has what the source hasn't", stale <= set(differ), differ[:5])

    writers = Writers(source)
    writers.start()
    following = start_import(directory, *urls, "--follow", "--delete")
    # The file is that of the run before until this one has begun to copy.
    check("it begins again", eventually(lambda: stage(directory) != ("whole", False)))
    check("it copies all, and deletes", eventually(lambda: stage(directory) == ("whole", False)))
    check("it follows, too", is_followed(source, resp) and writers.go_on())
    writers.stop()
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=120)
    check("it ends", following.returncode == LEFT_OUT, out + err)
    check("it says how many it has deleted", "deleted 0 keys" not in out and ": no string at the source" in out, out)
    check("it says nothing of --delete where that is given", "the first key" in err and "--delete" not in err, err)
    differ = differences(content(source), content(resp))
    check("after kills and changes that weren't told both are the same", not differ, differ[:5])
    check("nothing is left of the state", stage(directory) is None, stage(directory))
    check("the source's setting is what it was before the kills", setting() == b"", setting())


def changes_are_told_no_more(directory, source, resp):
    """Something else takes the source's notifications away: the import ends, since it may miss changes."""
    urls = ["--from", f"redis://{source}", "--to", f"redis://{resp}"]
    following = start_import(directory, *urls, "--follow")
    check("an import follows", eventually(lambda: stage(directory) == ("whole", False)))
    Client(source).run("CONFIG", "SET", "notify-keyspace-events", "")
    _, err = following.communicate(timeout=60)
    check("it ends with an error once it isn't told any more",
          following.returncode == 1 and "changes may be missed" in err, err)
    before = Path(directory, STATE).read_text()
    other = run(directory, "import", *urls, "--match", "key:1*")
    check("another import leaves its file alone",
          other.returncode == 1 and "is of another import" in other.stderr, other.stderr)
    check("byte for byte", Path(directory, STATE).read_text() == before)
    Path(directory, STATE).unlink()


def deleting(directory, source, resp):
    """What a plain import deletes, through a kill."""
    urls = ["--from", f"redis://{source}", "--to", f"redis://{resp}"]
    ours, theirs = Client(resp), Client(source)
    deleted = [key for key in sorted(theirs.keys() & ours.keys()) if key.startswith(b"key:")][::50]
    some = {key for key in deleted if key.startswith(b"key:1")}
    check("there are keys to delete", 0 < len(some) < len(deleted), (len(some), len(deleted)))
    answers = [answer for answer in theirs.pipeline([(b"DEL", key) for key in deleted]) if answer != 1]
    check("the source has lost them", not answers, answers[:5])
    ours.insist("SET", "other", "1")

    done = run(directory, "import", "--from", f"redis://{source}/9", "--to", f"redis://{resp}", "--delete")
    refused = done.returncode == 1 and "/9 has no keys" in done.stderr
    check("a source without keys is refused", refused, done.stdout + done.stderr)
    done = run(directory, "import", *urls)
    by_itself = "deleted" in done.stdout
    check("an import deletes nothing by itself", done.returncode == LEFT_OUT and not by_itself, done.stdout + done.stderr)
    differ = differences(content(source), content(resp))
    check("and so the rack has more", set(differ) == {*deleted, b"other"}, len(differ))

    done = run(directory, "import", *urls, "--match", "key:1*", "--delete")
    check("an import with --delete of some keys", done.returncode in (0, LEFT_OUT), done.stdout + done.stderr)
    differ = differences(content(source), content(resp))
    check("only those are deleted", set(differ) == {*deleted, b"other"} - some, len(differ))

    said = killed_at(directory, ("deleting", True), *urls, "--delete", "--batch", "50")
    check("an import is killed while it deletes", said == "", said)
    done = run(directory, "import", *urls, "--delete")
    check("it goes on", done.returncode == LEFT_OUT and "going on after" in done.stderr, done.stdout + done.stderr)
    differ = differences(content(source), content(resp))
    check("the rack has what the source has, and no more", not differ, differ[:5])
    check("nothing is left of the state", stage(directory) is None, stage(directory))


with tempfile.TemporaryDirectory(prefix="switchback-e2e-") as directory:
    source, target, resp, metrics = free_addresses(4)
    redis = Redis(f"{directory}/source", source)
    rack = Process("rack", "up", "--data", f"{directory}/data", "--nodes", "2", "--resp", resp,
                   "--metrics", metrics, log=f"{directory}/log")
    rack.wait_ready()
    fill(source)
    before = content(source)

    urls = ["--from", f"redis://{source}", "--to", f"redis://{resp}"]
    said = killed_at(directory, ("copying", True), *urls, "--batch", "50")
    check("an import is killed in the midst", said == "", said)
    partly = len(content(resp))
    check("it has copied some", 0 < partly < len(before), partly)
    done = run(directory, "import", *urls)
    check("it goes on", done.returncode == LEFT_OUT and "going on after" in done.stderr,
          done.stdout + done.stderr)
    check("it says what it left out", "left out 50 keys: no string (list:" in done.stdout, done.stdout)
    check("the rack has what the source has", not differences(before, content(resp)), differences(before, content(resp))[:5])
    check("nothing is left of the state", not os.path.exists(f"{directory}/{STATE}"))

    # What became of some writes isn't known, as when a switch dies meanwhile.
    Client(resp).run("FLUSHALL")
    forgetful = Forgetful(resp, answers=700)
    done = run(directory, "import", "--from", f"redis://{source}",
               "--to", f"redis://{forgetful.address}")
    check("writes of unknown outcome are written again", done.returncode == LEFT_OUT,
          done.stdout + done.stderr)
    check("there were some", forgetful.answers == 0, forgetful.answers)
    check("the rack has what the source has", not differences(before, content(resp)),
          differences(before, content(resp))[:5])

    # Nothing is ever known: Ctrl-C ends it all the same.
    forgetful = Forgetful(resp, answers=10**9)
    stuck = start_import(directory, "--from", f"redis://{source}", "--to", f"redis://{forgetful.address}")
    check("writes are tried again and again", eventually(lambda: forgetful.answers < 10**9 - 1500), forgetful.answers)
    stuck.send_signal(signal.SIGINT)
    _, err = stuck.communicate(timeout=20)
    check("a signal ends it", stuck.returncode == 1 and "stopped; the same command goes on" in err, err)
    Path(directory, STATE).unlink(missing_ok=True)

    # While it is written to: after Ctrl-C both are the same.
    Client(resp).run("FLUSHALL")
    writers = Writers(source)
    writers.start()
    follow = start_import(directory, *urls, "--follow")
    ours = Client(resp)
    check("all is copied", eventually(lambda: stage(directory) == ("whole", False)), stage(directory))
    check("there are writes after that", writers.go_on(), writers.count)
    writers.stop()
    follow.send_signal(signal.SIGINT)
    out, err = follow.communicate(timeout=120)
    check("it ends", follow.returncode == LEFT_OUT, out + err)
    differ = differences(content(source), content(resp))
    check("after all changes both are the same", not differ, differ[:5])
    setting = Client(source).run("CONFIG", "GET", "notify-keyspace-events")
    check("the source's setting is what it was", setting[1] == b"", setting)

    following_through_kills(directory, source, resp)
    changes_are_told_no_more(directory, source, resp)
    deleting(directory, source, resp)

    export = ["export", "--from", f"redis://{resp}", "--to", "dump.rdb"]
    undo = lambda: Path(directory, "dump.rdb").unlink(missing_ok=True)
    killed = kill_midway(f"{directory}/dump.rdb.state", undo, *export, "--batch", "50",
                         cwd=directory)
    check("an export is killed in the midst", killed)
    done = run(directory, *export)
    check("it goes on as well", done.returncode == 0 and "going on after" in done.stderr,
          done.stdout + done.stderr)
    check("what is unfinished is gone",
          sorted(name for name in os.listdir(directory) if "dump" in name) == ["dump.rdb"])
    again = run(directory, *export)
    check("a file isn't overwritten", again.returncode == 1 and "is there already" in again.stderr,
          again.stderr)
    other = Redis(directory, target, "--dbfilename", "dump.rdb")
    differ = differences(content(resp), content(target))
    check("redis-server loads what the rack has", not differ, differ[:5])
    checked = subprocess.run(["redis-check-rdb", f"{directory}/dump.rdb"], capture_output=True,
                             text=True)
    check("redis-check-rdb finds it good", "RDB looks OK" in checked.stdout, checked.stdout)

    # A part of a scan of few keys finds none.
    for keys in (1, 0):
        ours.insist("FLUSHALL")
        if keys:
            ours.insist("SET", "alone", "1")
        few = run(directory, "export", "--from", f"redis://{resp}", "--to", f"few-{keys}.rdb")
        check(f"an export of few records: {keys}", few.stdout.endswith(
            f": {keys} record{'' if keys == 1 else 's'}\n"), few.stdout + few.stderr)

    wrong = run(directory, "export", "--from", f"redis://{metrics}", "--to", "wrong.rdb")
    check("a server of something else is told", "what answers there is no Redis" in wrong.stderr,
          wrong.stderr)
    missing = run(directory, "import", "--from", "redis://127.0.0.1:1", "--to", f"redis://{resp}")
    check("a source that isn't there is named", "no connection to 127.0.0.1:1" in missing.stderr,
          missing.stderr)
    other.end()
    redis.end()
    over_tls(directory, resp)
    rack.stop()
finish()
