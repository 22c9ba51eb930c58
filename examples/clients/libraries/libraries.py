"""Libraries that use transactions and scripts of one key, against Switchback: locks, limiters,
counters."""

import asyncio
import sys
import threading
import time

import redis

HOST, PORT = sys.argv[1], int(sys.argv[2])
URL = f"redis://{HOST}:{PORT}/0"
CLIENT = redis.Redis(host=HOST, port=PORT)


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, wanted {wanted!r}")


def in_threads(count, work):
    """Runs `work` in threads; an exception in one of them is the program's."""
    failures = []

    def run():
        try:
            work()
        except Exception as error:  # told below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("exceptions in threads", failures, [])


def redis_py():
    pipeline = CLIENT.pipeline()
    check("pipeline()", pipeline.set("smoke:p", 1).incr("smoke:p").get("smoke:p").execute(),
          [True, 2, b"2"])

    def add():
        for _ in range(50):
            CLIENT.transaction(lambda pipe: (n := int(pipe.get("smoke:t") or 0), pipe.multi(),
                                             pipe.set("smoke:t", n + 1)),
                               "smoke:t")

    in_threads(4, add)
    check("transaction() with WATCH, 4 threads of 50", CLIENT.get("smoke:t"), b"200")

    lock = CLIENT.lock("smoke:lock", timeout=5)
    check("Lock.acquire", lock.acquire(blocking=False), True)
    check("a second Lock", CLIENT.lock("smoke:lock", timeout=5).acquire(blocking=False), False)
    check("Lock.extend", lock.extend(10), True)
    check("its time", 10_000 < CLIENT.pttl("smoke:lock") <= 15_000, True)
    check("Lock.reacquire", lock.reacquire(), True)
    lock.release()
    check("Lock.release", CLIENT.exists("smoke:lock"), 0)
    other = CLIENT.lock("smoke:lock", timeout=5)
    other.acquire()
    CLIENT.set("smoke:lock", "of another")
    try:
        other.release()
    except redis.exceptions.LockNotOwnedError:
        pass
    else:
        sys.exit("a lock of another was released")
    check("the other's lock", CLIENT.get("smoke:lock"), b"of another")

    total = 0

    def critical():
        nonlocal total
        for _ in range(20):
            with CLIENT.lock("smoke:critical", timeout=10, sleep=0.002):
                seen = total
                time.sleep(0)
                total = seen + 1

    in_threads(4, critical)
    check("Lock, 4 threads of 20", total, 80)


def django_redis():
    from django.conf import settings

    settings.configure(
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}})
    import django

    django.setup()
    from django.core.cache import cache

    cache.set("smoke:n", 0, None)

    def add():
        for _ in range(200):
            cache.incr("smoke:n")

    in_threads(8, add)
    check("django-redis incr, 8 threads of 200", cache.get("smoke:n"), 1600)
    with cache.lock("smoke:django", timeout=5):
        check("django-redis lock is held", CLIENT.exists(":1:smoke:django", "smoke:django"), 1)
    check("django-redis lock is released", CLIENT.exists(":1:smoke:django", "smoke:django"), 0)


def limits():
    import limits as library

    limiter = library.strategies.FixedWindowRateLimiter(library.storage.storage_from_string(URL))
    five = library.parse("5/hour")
    check("limits, fixed window", [limiter.hit(five, "smoke") for _ in range(7)],
          [True] * 5 + [False] * 2)
    check("limits, what remains", limiter.get_window_stats(five, "smoke").remaining, 0)


def cashews():
    from cashews import cache

    async def run():
        cache.setup(URL)
        check("cashews incr", [await cache.incr("smoke:cashews", expire=100) for _ in range(3)],
              [1, 2, 3])
        async with cache.lock("smoke:held", expire=30):
            check("cashews lock is held", await cache.is_locked("smoke:held"), True)
        check("cashews lock is released", await cache.is_locked("smoke:held"), False)

    asyncio.run(run())


def redlock():
    from redlock import RedLock

    held = RedLock("smoke:redlock", connection_details=[{"host": HOST, "port": PORT, "db": 0}],
                   ttl=5000)
    check("redlock acquires", held.acquire(), True)
    again = RedLock("smoke:redlock", connection_details=[{"host": HOST, "port": PORT, "db": 0}],
                    ttl=5000, retry_times=1)
    check("a second redlock", again.acquire(), False)
    held.release()
    check("redlock releases", CLIENT.exists("smoke:redlock"), 0)


def several_keys():
    """Whatever the gateway's setting: all of it or nothing."""
    pipeline = CLIENT.pipeline().set("smoke:one", 1).set("smoke:two", 2)
    try:
        executed = pipeline.execute() == [True, True]
    except redis.ResponseError as error:
        check("the error names the setting", 'transactions = "batch"' in str(error), True)
        executed = False
    check("transaction of two keys", CLIENT.exists("smoke:one", "smoke:two"), 2 if executed else 0)


def delete_all():
    for pattern in ["*smoke*", "LIMITS:*"]:
        for key in CLIENT.scan_iter(pattern, count=100):
            CLIENT.delete(key)


delete_all()
for library in [redis_py, django_redis, limits, cashews, redlock, several_keys]:
    library()
    print(f"{library.__name__.replace('_', '-')}: as with Redis")
delete_all()
