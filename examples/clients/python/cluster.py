"""redis-py's client for clusters against a gateway with `cluster = "emulated"`."""

import sys

from redis.cluster import RedisCluster


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"redis-py, cluster: {what}: got {got!r}, wanted {wanted!r}")


host, port = sys.argv[1], int(sys.argv[2])
for protocol in (2, 3):
    client = RedisCluster(host=host, port=port, protocol=protocol, decode_responses=True)
    check("flushall", client.flushall(), True)
    (node,) = client.get_nodes()
    check("the owner of all slots", (node.host, node.port, node.server_type),
          (host, port, "primary"))
    check("state", client.cluster_info()["cluster_state"], "ok")
    check("keyslot", client.cluster_keyslot("{user1000}.following"), 3443)
    check("set", client.set("a", "1"), True)
    check("incr", client.incr("a"), 2)
    check("keys of several slots", client.mget_nonatomic("a", "b"), ["2", None])
    # Of one slot, as a cluster wants it.
    pipeline = client.pipeline()
    pipeline.set("{x}one", 1)
    pipeline.get("{x}one")
    pipeline.incr("{x}two")
    check("pipeline", pipeline.execute(), [True, "1", 1])
    check("scan", sorted(client.scan_iter("*")), ["a", "{x}one", "{x}two"])
    check("dbsize", client.dbsize(), 3)
    replica = RedisCluster(host=host, port=port, read_from_replicas=True, decode_responses=True)
    check("readonly", replica.get("a"), "2")
print("ok")
