package switchback;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/**
 * YCSB over RESP, a record in one string: for each field the lengths of name and value (4 bytes
 * each), then both.
 */
public class RespClient extends DB {
    private Jedis jedis;

    @Override
    public void init() {
        var properties = getProperties();
        jedis = new Jedis(properties.getProperty("resp.host", "127.0.0.1"),
            Integer.parseInt(properties.getProperty("resp.port", "6379")));
        if (properties.containsKey("resp.password")) {
            jedis.auth(properties.getProperty("resp.password"));
        }
    }

    @Override
    public void cleanup() {
        jedis.close();
    }

    private static byte[] key(String key) {
        return key.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] encode(Map<String, byte[]> fields) {
        int bytes = fields.entrySet().stream()
            .mapToInt(field -> 8 + key(field.getKey()).length + field.getValue().length).sum();
        ByteBuffer record = ByteBuffer.allocate(bytes);
        fields.forEach((name, value) ->
            record.putInt(key(name).length).putInt(value.length).put(key(name)).put(value));
        return record.array();
    }

    private static Map<String, byte[]> decode(byte[] bytes) {
        Map<String, byte[]> fields = new HashMap<>();
        for (ByteBuffer record = ByteBuffer.wrap(bytes); record.hasRemaining(); ) {
            byte[] name = new byte[record.getInt()];
            byte[] value = new byte[record.getInt()];
            record.get(name).get(value);
            fields.put(new String(name, StandardCharsets.UTF_8), value);
        }
        return fields;
    }

    private static Map<String, byte[]> bytes(Map<String, ByteIterator> values) {
        Map<String, byte[]> fields = new HashMap<>();
        values.forEach((name, value) -> fields.put(name, value.toArray()));
        return fields;
    }

    @Override
    public Status read(String table, String key, Set<String> wanted,
            Map<String, ByteIterator> result) {
        try {
            byte[] record = jedis.get(key(key));
            if (record == null) {
                return Status.NOT_FOUND;
            }
            Map<String, byte[]> fields = decode(record);
            if (wanted != null) {
                fields.keySet().retainAll(wanted);
            }
            fields.forEach((name, value) -> result.put(name, new ByteArrayByteIterator(value)));
            return Status.OK;
        } catch (JedisException error) {
            return failed(error);
        }
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        try {
            jedis.set(key(key), encode(bytes(values)));
            return Status.OK;
        } catch (JedisException error) {
            return failed(error);
        }
    }

    /**
     * An update of all fields is a write; of some, a read and a write. (-p writeallfields=true
     * makes it a write.)
     */
    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        Map<String, byte[]> changed = bytes(values);
        try {
            if (!Boolean.parseBoolean(getProperties().getProperty("writeallfields"))) {
                byte[] record = jedis.get(key(key));
                if (record == null) {
                    return Status.NOT_FOUND;
                }
                Map<String, byte[]> fields = decode(record);
                fields.putAll(changed);
                changed = fields;
            }
            jedis.set(key(key), encode(changed));
            return Status.OK;
        } catch (JedisException error) {
            return failed(error);
        }
    }

    @Override
    public Status delete(String table, String key) {
        try {
            return jedis.del(key(key)) == 1 ? Status.OK : Status.NOT_FOUND;
        } catch (JedisException error) {
            return failed(error);
        }
    }

    @Override
    public Status scan(String table, String from, int count, Set<String> fields,
            Vector<HashMap<String, ByteIterator>> result) {
        return Status.NOT_IMPLEMENTED;
    }

    private static Status failed(JedisException error) {
        System.err.println(error.getMessage());
        return Status.ERROR;
    }
}
