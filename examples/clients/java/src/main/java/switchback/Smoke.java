package switchback;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** Jedis against Switchback, in both versions of the protocol. */
public final class Smoke {
    private Smoke() {}

    private static void check(String what, Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            System.err.println("Jedis: " + what + ": got " + got + ", wanted " + wanted);
            System.exit(1);
        }
    }

    private static void refused(String what, Runnable call, String words) {
        try {
            call.run();
            check(what, "no error", "an error");
        } catch (JedisDataException error) {
            String why = error.getMessage();
            check(what + " names the reason: " + why, why.contains(words), true);
        }
    }

    private static void smoke(JedisPooled client) {
        check("ping", client.ping(), "PONG");
        client.del("smoke:a", "smoke:n");
        check("set", client.set("smoke:a", "1", SetParams.setParams().ex(100)), "OK");
        check("get", client.get("smoke:a"), "1");
        check("ttl", client.ttl("smoke:a") > 98, true);
        check("set nx", client.set("smoke:a", "2", SetParams.setParams().nx()), null);
        check("setGet", client.setGet("smoke:a", "2"), "1");
        check("incrBy", client.incrBy("smoke:a", 40), 42L);
        check("append", client.append("smoke:a", "!"), 3L);
        refused("incr of no number", () -> client.incr("smoke:a"), "not an integer");
        check("getDel", client.getDel("smoke:a"), "42!");
        check("get of nothing", client.get("smoke:a"), null);

        check("mset", client.mset("smoke:x", "1", "smoke:y", "2"), "OK");
        check("mget", client.mget("smoke:x", "smoke:none", "smoke:y"),
            Arrays.asList("1", null, "2"));
        check("exists", client.exists("smoke:x", "smoke:none", "smoke:y"), 2L);
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            var page = client.scan(cursor, new ScanParams().match("smoke:*").count(100));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        check("scan", found, Set.of("smoke:x", "smoke:y"));
        check("del", client.del("smoke:x", "smoke:y", "smoke:none"), 2L);

        try (Pipeline pipeline = (Pipeline) client.pipelined()) {
            List<Response<Long>> numbers = new ArrayList<>();
            for (int i = 0; i < 500; i++) {
                numbers.add(pipeline.incr("smoke:n"));
            }
            pipeline.sync();
            for (int i = 0; i < 500; i++) {
                check("pipelined incr", numbers.get(i).get(), i + 1L);
            }
        }
        client.del("smoke:n");

        refused("hset", () -> client.hset("smoke:h", "f", "v"), "strings only");
        check("transaction", client.multi().exec().size(), 0);
    }

    /** Host and port; the password, if any, in PASSWORD. */
    public static void main(String[] args) {
        for (RedisProtocol protocol : RedisProtocol.values()) {
            var config = DefaultJedisClientConfig.builder().protocol(protocol).clientName("smoke")
                .password(System.getenv("PASSWORD"));
            var address = new HostAndPort(args[0], Integer.parseInt(args[1]));
            try (JedisPooled client = new JedisPooled(address, config.build())) {
                smoke(client);
            }
            System.out.println("Jedis, " + protocol + ": ok");
        }
    }
}
