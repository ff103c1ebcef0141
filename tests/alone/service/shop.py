"""A shop for the tests of `holdfast judge service`: MODE says how it sells.

The last seven ways are right, each of the others is wrong in one thing. All but `key-before` keep
the idempotency key right: it has a unique index, and who finds its key taken gives back the units.

    python schema.py     creates the tables
    uvicorn shop:app     serves
"""

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg.errors import LockNotAvailable, SerializationFailure, UniqueViolation
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from redis.asyncio import Redis
from redis.exceptions import LockError
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

MODE = os.environ["MODE"]
DATABASE_URL = os.environ["DATABASE_URL"]
READ = "select stock from products where id = %s"
COUNT = (
    "select stock - (select count(*) from orders where product_id = products.id)"
    " from products where id = %s"
)
TAKE = "update products set stock = stock - %(n)s where id = %(id)s"

# Statements outside of `transaction()` are transactions of their own. Every buyer may have a
# connection: the judge's gate needs all of them to wait in the database.
pool = AsyncConnectionPool(
    DATABASE_URL, min_size=2, max_size=16, timeout=5, open=False, kwargs={"autocommit": True}
)
redis = Redis.from_url(os.environ["REDIS_URL"])


@dataclass
class Order:
    product: str
    quantity: int
    buyer: int
    key: str


class Busy(Exception):
    """The lock was not free in time."""


async def value(db, statement, values):
    """Returns the first column of the first row, or None."""
    row = await (await db.execute(statement, values)).fetchone()
    return row[0] if row else None


async def stored(db, order):
    """Returns the order that has this key, or None."""
    return await value(db, "select id from orders where idempotency_key = %s", [order.key])


async def insert(db, order):
    """Returns the new order; if another one has its key, rolls the transaction back."""
    new = await value(
        db,
        "insert into orders (product_id, quantity, idempotency_key, buyer)"
        " values (%s, %s, %s, %s) on conflict do nothing returning id",
        [order.product, order.quantity, order.key, order.buyer],
    )
    if new is None:
        raise psycopg.Rollback
    return new


async def take(db, order, condition=""):
    """Subtracts in the database, and returns whether a row was changed."""
    values = {"n": order.quantity, "id": order.product}
    return (await db.execute(f"{TAKE} {condition}", values)).rowcount > 0


async def sell_from(stock, db, order):
    """Writes what is left of the stock that was read, and the order."""
    if stock < order.quantity:
        return None
    left = stock - order.quantity
    await db.execute("update products set stock = %s where id = %s", [left, order.product])
    return await insert(db, order)


@asynccontextmanager
async def advisory_lock(db, order):
    """Holds a lock of Postgres that belongs to the connection, not to its transaction."""
    await db.execute("select pg_advisory_lock(hashtext(%s))", [order.product])
    try:
        yield
    finally:
        await db.execute("select pg_advisory_unlock(hashtext(%s))", [order.product])


async def try_row_lock(db, order, ms, tries):
    """Sells as `row_lock`, but waits only so long for the row; then it begins anew, so often."""
    for _ in range(tries):
        with suppress(LockNotAvailable):
            async with db.transaction():
                await db.execute(f"set local lock_timeout = {ms}")
                stock = await value(db, f"{READ} for update", [order.product])
                return await stored(db, order) or await sell_from(stock, db, order)
    raise Busy


# The modes. Each returns the order, or None: sold out, or rolled back since the key is another's.


async def read_then_write(db, order):
    """Wrong: two orders read the same stock, and the second overwrites what the first wrote."""
    async with db.transaction():
        return await sell_from(await value(db, READ, [order.product]), db, order)


async def check_then_decrement(db, order):
    """Wrong: two orders see the last unit, and both subtract it."""
    async with db.transaction():
        if await value(db, READ, [order.product]) < order.quantity:
            return None
        await take(db, order)
        return await insert(db, order)


async def no_check(db, order):
    """Wrong: nothing asks whether there is a unit."""
    async with db.transaction():
        await take(db, order)
        return await insert(db, order)


async def trigger(db, order):
    """Wrong: two orders see the last unit, and a trigger subtracts it for both."""
    async with db.transaction():
        if await value(db, READ, [order.product]) < order.quantity:
            return None
        return await insert(db, order)


async def function(db, order):
    """Wrong: as `check_then_decrement`, in a function. It is its own transaction."""
    call = "select place_order(%s, %s, %s, %s)"
    with suppress(UniqueViolation):
        return await value(db, call, [order.product, order.quantity, order.key, order.buyer])
    return None


async def counted(db, order):
    """Wrong: two orders count what was sold before either adds its own. `stock` stays."""
    async with db.transaction():
        if await value(db, COUNT, [order.product]) < order.quantity:
            return None
        return await insert(db, order)


async def two_transactions(db, order):
    """Wrong: killed between the two, it has taken a unit that no order names."""
    if not await take(db, order, "and stock >= %(n)s"):
        return None
    async with db.transaction():
        return await insert(db, order)
    # Only after a rollback: the key is another's, and the unit goes back.
    await db.execute(
        "update products set stock = stock + %s where id = %s", [order.quantity, order.product]
    )


async def key_before(db, order):
    """Wrong: the key was looked up before the lock only, and this mode has no unique index."""
    async with db.transaction():
        return await sell_from(await value(db, f"{READ} for update", [order.product]), db, order)


async def redis_lock(db, order):
    """Wrong: paused for longer than the lease, it writes what it read under a lock it has lost."""
    lock = redis.lock(f"lock:{order.product}", timeout=1, sleep=0.005, blocking_timeout=5)
    if not await lock.acquire():
        raise Busy
    try:
        async with db.transaction():
            return await sell_from(await value(db, READ, [order.product]), db, order)
    finally:
        with suppress(LockError):  # expired: another's lock stays
            await lock.release()


async def redis_look_then_set(db, order):
    """Wrong: two orders see that nobody has the lock before either sets it."""
    lock = f"lock:{order.product}"
    while await redis.exists(lock):
        await asyncio.sleep(0.1)
    await redis.set(lock, order.key, ex=10)
    try:
        async with db.transaction():
            return await sell_from(await value(db, READ, [order.product]), db, order)
    finally:
        await redis.delete(lock)


async def lock_before_commit(db, order):
    """Wrong: the lock is released inside the transaction, and the next reads before its commit."""
    async with db.transaction(), advisory_lock(db, order):
        return await sell_from(await value(db, READ, [order.product]), db, order)


async def lock_timeout_then_read(db, order):
    """Wrong: an order that does not get the row in three tries reads it without a lock."""
    try:
        return await try_row_lock(db, order, 100, 3)
    except Busy:
        return await read_then_write(db, order)


async def polled(db, order):
    """Wrong as `read-then-write`, and `poll()` sends statements all the time."""
    return await read_then_write(db, order)


async def row_lock(db, order):
    """Right: the row is locked from the read to the commit, and the key is looked up meanwhile."""
    async with db.transaction():
        stock = await value(db, f"{READ} for update", [order.product])
        return await stored(db, order) or await sell_from(stock, db, order)


async def conditional(db, order):
    """Right: one statement checks and subtracts, in one transaction with the order."""
    async with db.transaction():
        if not await take(db, order, "and stock >= %(n)s"):
            return None
        return await insert(db, order)


async def advisory(db, order):
    """Right: the lock ends with the transaction, not before."""
    async with db.transaction():
        await db.execute("select pg_advisory_xact_lock(hashtext(%s))", [order.product])
        return await sell_from(await value(db, READ, [order.product]), db, order)


async def no_wait(db, order):
    """Right: who does not get the row at once asks for it again."""
    while True:
        try:
            async with db.transaction():
                stock = await value(db, f"{READ} for update nowait", [order.product])
                return await sell_from(stock, db, order)
        except LockNotAvailable:
            await asyncio.sleep(0.002)


async def serializable(db, order):
    """Right: Postgres refuses one of two that have read what the other wrote, and it begins anew."""
    while True:
        try:
            await db.execute("begin isolation level serializable")
            placed = await sell_from(await value(db, READ, [order.product]), db, order)
            await db.execute("commit")
            return placed
        except SerializationFailure:
            await db.execute("rollback")


async def impatient(db, order):
    """Right: an order whose statement takes too long is given up, with its connection."""
    try:
        return await asyncio.wait_for(row_lock(db, order), 0.03)
    except TimeoutError:
        await db.close()
        raise Busy from None


async def quitting(db, order):
    """Right: the process ends with its connection, and leaves what is unfinished to Postgres."""
    try:
        return await row_lock(db, order)
    except psycopg.OperationalError:
        os._exit(1)


async def lock_timeout(db, order):
    """Right: who waits too long for the row begins anew, for longer than the gate is shut."""
    return await try_row_lock(db, order, 20, 500)


async def poll():
    """Looks for work, in transactions of its own."""
    while True:
        async with pool.connection() as db, db.transaction():
            await db.execute("select id from orders where buyer < 0 for update skip locked")
        await asyncio.sleep(0.02)


MODES = {
    mode.__name__.replace("_", "-"): mode
    for mode in (
        read_then_write,
        check_then_decrement,
        no_check,
        trigger,
        function,
        counted,
        two_transactions,
        key_before,
        redis_lock,
        redis_look_then_set,
        lock_before_commit,
        lock_timeout_then_read,
        polled,
        row_lock,
        conditional,
        advisory,
        no_wait,
        serializable,
        impatient,
        quitting,
        lock_timeout,
    )
}
sell = MODES[MODE]


@asynccontextmanager
async def lifespan(_app):
    async with pool:
        job = asyncio.create_task(poll()) if sell is polled else None
        yield
        if job:
            job.cancel()
    await redis.aclose()


async def health(_request):
    return JSONResponse({"mode": MODE})


async def post_order(request):
    body = await request.json()
    key = request.headers["Idempotency-Key"]
    order = Order(body["product"], int(body["quantity"]), int(body["buyer"]), key)
    try:
        async with pool.connection() as db:
            # Again after a refusal: another order of this key may have got the last unit meanwhile.
            sold = await stored(db, order) or await sell(db, order) or await stored(db, order)
    except (Busy, PoolTimeout):
        return JSONResponse({"error": "busy"}, 503)
    if sold is None:
        return JSONResponse({"error": "sold out"}, 409)
    return JSONResponse({"id": sold}, 201)


# What FastAPI is made of: that itself would take as long to start as all the rest.
routes = [Route("/health", health), Route("/orders", post_order, methods=["POST"])]
app = Starlette(routes=routes, lifespan=lifespan)
