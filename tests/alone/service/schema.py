"""Creates the tables of shop.py, for the mode MODE, without the imports of what serves."""

import os

import psycopg

MODE = os.environ["MODE"]
# What the modes `trigger` and `function` leave to the database.
TRIGGER = """
create function take_unit() returns trigger language plpgsql as $$
begin
    update products set stock = stock - new.quantity where id = new.product_id;
    return new;
end $$;
create trigger take_unit after insert on orders for each row execute function take_unit()"""
FUNCTION = """
create function place_order(product text, n int, key text, buyer int) returns bigint
language plpgsql as $$
declare
    placed bigint;
begin
    if (select stock from products where id = product) < n then
        return null;
    end if;
    update products set stock = stock - n where id = product;
    insert into orders (product_id, quantity, idempotency_key, buyer)
    values (product, n, key, place_order.buyer) returning id into placed;
    return placed;
end $$"""


def create():
    """Creates the tables. Only `key-before` has no unique index."""
    unique = "" if MODE == "key-before" else "unique"
    with psycopg.connect(os.environ["DATABASE_URL"]) as db:
        db.execute("create table products (id text primary key, stock int not null)")
        db.execute(
            "create table orders (id bigserial primary key,"
            " product_id text not null references products, quantity int not null,"
            " idempotency_key text not null, buyer int not null)"
        )
        db.execute(f"create {unique} index on orders (idempotency_key)")
        if MODE == "trigger":
            db.execute(TRIGGER)
        if MODE == "function":
            db.execute(FUNCTION)


create()
