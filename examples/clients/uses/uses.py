"""Everyday uses of Python libraries, with their results: uses.py HOST PORT prints `works` or
`fails` for each.

A use works if it gives what it gives with a redis-server. One that fails has to say so: a use that
throws nothing and gives something else is `WRONG`, and makes the exit code 1.
"""

import asyncio
import sys
import warnings

import redis

warnings.simplefilter("ignore")
HOST, PORT = sys.argv[1], int(sys.argv[2])
URL = f"redis://{HOST}:{PORT}/0"
SERVER = redis.Redis(HOST, PORT)
wrong = []


class Wrong(Exception):
    """Something else than with a redis-server, and nothing said."""


def same(got, wanted):
    if got != wanted:
        raise Wrong(f"got {got!r}, wanted {wanted!r}")


def run(name, use):
    SERVER.flushall()
    try:
        use()
        print(f"{name}: works")
    except Wrong as error:
        wrong.append(name)
        print(f"{name}: WRONG: {error}")
    except Exception as error:
        print(f"{name}: fails: {type(error).__name__}: {str(error).splitlines()[0][:150]}")


def django_caches():
    import django
    from django.conf import settings
    from django.core.cache import caches

    settings.configure(
        CACHES={
            "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": URL},
            "dr": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL},
        },
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
    )
    django.setup()
    return caches


CACHES = django_caches()


def django_single(which):
    cache = CACHES[which]
    cache.set("a", 1, 30)
    same(cache.get("a"), 1)
    same((cache.add("b", 1), cache.add("b", 2)), (True, False))
    same(cache.incr("a"), 2)
    same(cache.get_many(["a", "b", "c"]), {"a": 2, "b": 1})
    same(cache.delete("b"), True)
    same((cache.touch("a", 10), cache.touch("none", 10)), (True, False))
    same((cache.get_or_set("z", 1), cache.get("z")), (1, 1))


def django_many(which):
    cache = CACHES[which]
    cache.set_many({"x": 1, "y": 2}, 30)
    same(cache.get_many(["x", "y"]), {"x": 1, "y": 2})


def django_sessions():
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["user"] = 7
    session.create()
    same(SessionStore(session.session_key)["user"], 7)


def django_redis_lock():
    cache = CACHES["dr"]
    with cache.lock("l", timeout=5):
        same(cache.lock("l", timeout=5).acquire(blocking=False), False)
    lock = cache.lock("l", timeout=5)
    same(lock.acquire(blocking=False), True)
    lock.release()


def flask_cache(use):
    from flask import Flask
    from flask_caching import Cache

    app = Flask("uses")
    app.config.update(CACHE_TYPE="RedisCache", CACHE_REDIS_HOST=HOST, CACHE_REDIS_PORT=PORT)
    cache = Cache(app)
    with app.app_context():
        use(cache)


def flask_single(cache):
    cache.set("a", 1, timeout=20)
    same(cache.get("a"), 1)
    same((cache.add("b", 1), cache.add("b", 1)), (True, False))
    same(cache.get_many("a", "b"), [1, 1])
    same(cache.delete("b"), True)


def flask_many(cache):
    cache.set_many({"a": 1, "b": 2}, timeout=20)
    same(cache.get_many("a", "b"), [1, 2])


def limiter(kind):
    import limits

    storage = limits.storage.storage_from_string(URL)
    strategy = getattr(limits.strategies, kind)(storage)
    limit = limits.parse("3/minute")
    same([strategy.hit(limit, "user") for _ in range(4)], [True, True, True, False])
    same(strategy.get_window_stats(limit, "user").remaining, 0)


def redis_lock():
    lock, other = SERVER.lock("l", timeout=5), SERVER.lock("l", timeout=5)
    same((lock.acquire(), other.acquire(blocking=False), lock.extend(1)), (True, False, True))
    lock.release()
    same(other.acquire(blocking=False), True)


def pipeline(transaction):
    pipe = SERVER.pipeline(transaction=transaction)
    same(pipe.set("a", 1).incr("a").get("a").execute(), [True, 2, b"2"])


def dogpile():
    from dogpile.cache import make_region

    arguments = {"host": HOST, "port": PORT, "redis_expiration_time": 120}
    region = make_region().configure("dogpile.cache.redis", expiration_time=60, arguments=arguments)
    region.set("a", 1)
    same(region.get("a"), 1)
    region.set_multi({"a": 1, "b": 2})
    same(region.get_multi(["a", "b"]), [1, 2])
    region.delete("a")
    same(bool(region.get("a")), False)


async def aiocache():
    from aiocache import Cache

    cache = Cache(Cache.REDIS, endpoint=HOST, port=PORT)
    await cache.set("a", "1", ttl=5)
    same(await cache.get("a"), "1")
    await cache.multi_set([("a", "1"), ("b", "2")], ttl=5)
    same(await cache.multi_get(["a", "b"]), ["1", "2"])
    same(await cache.increment("n"), 1)
    same(await cache.delete("a"), 1)


async def cashews():
    from cashews import Cache
    from cashews.exceptions import LockedError

    cache = Cache()
    cache.setup(URL)
    await cache.set("a", 1, expire=5)
    same(await cache.get("a"), 1)
    same((await cache.incr("n"), await cache.incr("n")), (1, 2))
    async with cache.lock("k", expire=5):
        try:
            async with cache.lock("k", expire=5, wait=False):
                raise Wrong("the lock was taken twice")
        except LockedError:
            pass
    # Released: it can be taken again, at once.
    async with cache.lock("k", expire=5, wait=False):
        pass


def rq_enqueue():
    import rq

    queue = rq.Queue(connection=SERVER)
    same(queue.enqueue(len, [1]).id in queue.job_ids, True)


def celery():
    from celery import Celery

    app = Celery("uses", broker=URL, backend=URL)
    app.conf.update(broker_transport_options={"max_retries": 1}, broker_connection_retry=False,
                    task_publish_retry=False,
                    result_backend_transport_options={"retry_policy": {"max_retries": 0}})
    app.backend.max_retries = 0
    app.send_task("t")
    app.backend.store_result("1", 1, "SUCCESS")
    same(app.backend.get_result("1"), 1)


run("django, single keys", lambda: django_single("default"))
run("django, set_many", lambda: django_many("default"))
run("django, sessions", django_sessions)
run("django-redis, single keys", lambda: django_single("dr"))
run("django-redis, set_many", lambda: django_many("dr"))
run("django-redis, lock", django_redis_lock)
run("flask-caching, single keys", lambda: flask_cache(flask_single))
run("flask-caching, set_many", lambda: flask_cache(flask_many))
run("limits, fixed window", lambda: limiter("FixedWindowRateLimiter"))
run("limits, moving window", lambda: limiter("MovingWindowRateLimiter"))
run("limits, sliding window", lambda: limiter("SlidingWindowCounterRateLimiter"))
run("redis-py, Lock", redis_lock)
run("redis-py, pipeline()", lambda: pipeline(True))
run("redis-py, pipeline(transaction=False)", lambda: pipeline(False))
run("dogpile.cache", dogpile)
run("aiocache", lambda: asyncio.run(aiocache()))
run("cashews", lambda: asyncio.run(cashews()))
run("rq", rq_enqueue)
run("celery", celery)
sys.exit(bool(wrong))
