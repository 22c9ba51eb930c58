// Everyday uses of Node libraries, with their results: node uses.mjs HOST PORT prints as uses.py
// does.
import { strict as assert } from "node:assert";
import KeyvRedis, { createKeyv } from "@keyv/redis";
import { Queue } from "bullmq";
import * as connectRedis from "connect-redis";
import Redis from "ioredis";
import Keyv from "keyv";
import rateLimiter from "rate-limiter-flexible";
import { createClient } from "redis";
import Redlock from "redlock";

const [host, port] = process.argv.slice(2);
const url = `redis://${host}:${port}`;
const server = new Redis(port, host);
let wrong = 0;

function same(got, wanted) {
    assert.deepEqual(got, wanted);
}

async function run(name, use) {
    await server.flushall();
    const late = new Promise((_, reject) =>
        setTimeout(() => reject(new Error("no answer in 10 s")), 10_000));
    try {
        await Promise.race([use(), late]);
        console.log(`${name}: works`);
    } catch (error) {
        const silent = error instanceof assert.AssertionError;
        wrong += silent;
        const why = String(error).split("\n").slice(0, silent ? 9 : 1).join(" ").slice(0, 200);
        console.log(`${name}: ${silent ? "WRONG" : "fails"}: ${why}`);
    }
}

async function withIoredis(use) {
    const client = new Redis(port, host);
    try {
        await use(client);
    } finally {
        client.disconnect();
    }
}

async function withKeyv(use) {
    const keyv = new Keyv({ store: new KeyvRedis(url) });
    const errors = [];
    keyv.on("error", (error) => errors.push(error));
    await use(keyv);
    // An `error` event is a way to say it, if only that.
    if (errors.length > 0) throw errors[0];
    await keyv.disconnect();
}

await run("ioredis, single keys and pipeline", () => withIoredis(async (client) => {
    await client.set("a", 1, "EX", 5);
    same(await client.get("a"), "1");
    same(await client.pipeline().incr("a").get("a").exec(), [[null, 2], [null, "2"]]);
}));
await run("ioredis, multi()", () => withIoredis(async (client) => {
    same(await client.multi().set("a", 1).get("a").exec(), [[null, "OK"], [null, "1"]]);
}));
await run("node-redis", async () => {
    const client = await createClient({ url }).connect();
    await client.set("a", "1", { EX: 5 });
    same(await client.get("a"), "1");
    client.destroy();
});
await run("keyv, single keys", () => withKeyv(async (keyv) => {
    await keyv.set("a", 1, 1000);
    same(await keyv.get("a"), 1);
    same(await keyv.delete("a"), true);
    same(await keyv.get("a"), undefined);
}));
await run("keyv, setMany, getMany, clear", () => withKeyv(async (keyv) => {
    const entries = [{ key: "a", value: 1, ttl: 60_000 }, { key: "b", value: 2 }];
    const throwing = createKeyv(url, { throwOnErrors: true });
    throwing.on("error", () => {});
    const isThrown = await throwing.setMany(entries).then(() => false, () => true);
    await throwing.disconnect();
    await keyv.setMany(entries);
    const found = await keyv.getMany(["a", "b"]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    same(isThrown, found[0] === undefined);
    if (isThrown) throw new Error("nothing was stored; there was an error event");
    same(found, [1, 2]);
    await keyv.clear();
    same(await keyv.get("a"), undefined);
}));
await run("connect-redis", async () => {
    const client = await createClient({ url }).connect();
    const Store = connectRedis.RedisStore ?? connectRedis.default;
    const store = new Store({ client });
    await store.set("sid", { cookie: {}, user: 7 });
    same((await store.get("sid")).user, 7);
    await store.touch("sid", { cookie: {} });
    await store.destroy("sid");
    client.destroy();
});
await run("rate-limiter-flexible", () => withIoredis(async (client) => {
    const limiter = new rateLimiter.RateLimiterRedis(
        { storeClient: client, points: 2, duration: 5 });
    same((await limiter.consume("user")).remainingPoints, 1);
    same((await limiter.consume("user")).remainingPoints, 0);
    const refused = await limiter.consume("user").then(() => false, (why) => why.consumedPoints);
    same(refused, 3);
}));
await run("redlock", () => withIoredis(async (client) => {
    const lock = new Redlock([client], { retryCount: 0 });
    const held = await lock.acquire(["r"], 5000);
    same(await lock.acquire(["r"], 5000).then(() => true, () => false), false);
    await held.unlock();
    await (await lock.acquire(["r"], 5000)).unlock();
}));
await run("bullmq", async () => {
    const queue = new Queue("q", { connection: { host, port } });
    queue.on("error", () => {});
    const job = await queue.add("j", {});
    same(typeof job.id, "string");
    await queue.close();
});
process.exit(wrong ? 1 : 0);
