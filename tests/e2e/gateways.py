"""Two gateways change one key at the same time, by scripts, transactions with WATCH, and INCR: no
change is lost, and the controller tells what both know. Run by gateways.sh.
"""

import os
import re
import threading

from checks import check, eventually, finish, sample
from rack import Client, Process, free_addresses, running

CHANGES = 300
SCRIPT = "local count = tonumber(redis.call('GET', KEYS[1]) or '0'); redis.call('SET', KEYS[1], count + 1)"


def by_script(client):
    client.run("EVAL", SCRIPT, 1, "count")


def by_command(client):
    client.run("INCR", "count")


def by_transaction(client):
    while True:
        client.run("WATCH", "count")
        count = int(client.run("GET", "count") or 0)
        client.run("MULTI")
        client.run("SET", "count", count + 1)
        # Nothing, if others changed it meanwhile.
        if client.run("EXEC") == ["OK"]:
            return


def second_gateway(rack):
    """Another gateway of the rack: a process with addresses and a spool of its own."""
    resp, metrics = free_addresses(2)
    with open(rack.config) as file:
        text = file.read()
    spool = os.path.join(rack.directory, "second-spool")
    own = f'[gateway]\nresp = "{resp}"\nmetrics = "{metrics}"\nspool = "{spool}"\n'
    text, replaced = re.subn(r'\[gateway\]\nresp = "[^"]+"\nmetrics = "[^"]+"\n', lambda _: own,
                             text)
    assert replaced == 1, text
    config = os.path.join(rack.directory, "second.toml")
    with open(config, "w") as file:
        file.write(text)
    gateway = Process("second gateway", "gateway", "--config", config,
                      log=os.path.join(rack.directory, "second.log"))
    gateway.wait_ready()
    return gateway, resp


def run(rack):
    gateway, resp = second_gateway(rack)
    errors = []

    def change(address, how):
        try:
            client = Client(address)
            for _ in range(CHANGES):
                how(client)
        except Exception as error:  # so that the test says what it was
            errors.append(f"{how.__name__} at {address}: {error}")

    ways = [by_script, by_command, by_transaction]
    threads = [threading.Thread(target=change, args=(address, how)) for address in (rack.resp, resp)
               for how in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clients = [Client(address) for address in (rack.resp, resp)]
    connections = lambda: sample(rack.metrics)["connections"]
    check("the controller tells what both know", eventually(lambda: connections() == 2),
          connections())
    gateway.kill()
    check("what one knows, when the other is gone", eventually(lambda: connections() == 1),
          connections())
    del clients
    check("no change failed", not errors, errors)
    found = int(Client(rack.resp).insist("GET", "count"))
    check("every change is in the record", found == CHANGES * len(threads),
          f"{found} of {CHANGES * len(threads)}")


# No switch is taken for dead since a busy machine lets it wait: what is under way would be
# indeterminate.
with running(switch_timeout_ms=3000) as its_rack:
    run(its_rack)
finish()
