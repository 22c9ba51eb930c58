"""redis-py against Switchback, in both versions of the protocol."""

import os
import sys

import redis


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"redis-py: {what}: got {got!r}, wanted {wanted!r}")


def refused(what, call, words):
    try:
        got = call()
    except redis.ResponseError as error:
        check(f"{what} names the reason", words in str(error), True)
    else:
        sys.exit(f"redis-py: {what}: got {got!r}, wanted an error")


def smoke(client):
    check("ping", client.ping(), True)
    check("echo", client.echo("hi"), "hi")
    for key in client.scan_iter("smoke:*", count=100):
        client.delete(key)

    check("set", client.set("smoke:a", "1", ex=100), True)
    check("get", client.get("smoke:a"), "1")
    check("ttl", 98 <= client.ttl("smoke:a") <= 100, True)
    check("set nx", client.set("smoke:a", "2", nx=True), None)
    check("set xx get", client.set("smoke:a", "2", xx=True, get=True), "1")
    check("persist of no expiry", client.persist("smoke:a"), False)
    check("incr", client.incr("smoke:a"), 3)
    check("decrby", client.decrby("smoke:a", 5), -2)
    check("append", client.append("smoke:a", "x"), 3)
    check("strlen", client.strlen("smoke:a"), 3)
    refused("incr of no number", lambda: client.incr("smoke:a"), "not an integer")
    check("getdel", client.getdel("smoke:a"), "-2x")
    check("get of nothing", client.get("smoke:a"), None)

    many = {f"smoke:m{i}": str(i) for i in range(300)}
    check("mset", client.mset(many), True)
    check("mget", client.mget([*many, "smoke:none"]), [*many.values(), None])
    check("exists", client.exists("smoke:m1", "smoke:m1", "smoke:none"), 2)
    check("scan_iter", {*client.scan_iter("smoke:m*", count=50)}, {*many})
    check("type", client.type("smoke:m1"), "string")
    check("dbsize", client.dbsize() >= 300, True)
    check("delete", client.delete(*many, "smoke:none"), 300)

    large = "x" * 300_000
    check("large set", client.set("smoke:large", large), True)
    check("large get", client.get("smoke:large") == large, True)
    check("unlink", client.unlink("smoke:large"), 1)

    pipeline = client.pipeline(transaction=False)
    for i in range(1000):
        pipeline.set("smoke:p", i)
        pipeline.get("smoke:p")
    check("pipeline", pipeline.execute(), [x for i in range(1000) for x in (True, str(i))])
    client.delete("smoke:p")

    refused("hset", lambda: client.hset("smoke:h", "f", "v"), "strings only")
    check("transaction",
          client.pipeline(transaction=True).set("smoke:t", 1).incr("smoke:t").execute(), [True, 2])
    check("script", client.eval("return redis.call('incr', KEYS[1])", 1, "smoke:t"), 3)
    client.delete("smoke:t")
    check("client name", client.client_getname(), "smoke")
    check("info", client.info("server")["redis_mode"], "standalone")
    check("config", client.config_get("databases"), {"databases": "1"})
    check("command", "get" in client.command(), True)


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    for protocol in (2, 3):
        client = redis.Redis(
            host, port, password=os.environ.get("PASSWORD"), protocol=protocol,
            decode_responses=True, client_name="smoke"
        )
        smoke(client)
        print(f"redis-py {redis.__version__}, RESP{protocol}: ok")


main()
