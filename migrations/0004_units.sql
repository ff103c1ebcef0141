-- Items in units, for the strategy `units`: one row per unit, which is what an order locks, instead
-- of the item's row. Only items of the lab that were made so have any.
--
-- No column and no index is added to an existing table. `inherits` locks `stock_ledger` against
-- vacuum and other changes of the schema, not against reads and writes of running replicas.

-- The versions of units. One sequence for all of them: two ledger entries of an item have the same
-- version only if they were computed from the same read of the same unit (a fork).
create sequence item_unit_versions as bigint;

-- No foreign keys, as in `order_lines`: the item is created in the same transaction, and deleted
-- with its units.
--
-- A sale updates the row once, and each such update leaves a dead version in the table and in its
-- indexes: the table is vacuumed long before a fifth of it is dead.
create table item_units (
    sku      text collate "C" not null,
    -- From 1.
    unit     bigint           not null,
    -- Changed by every sale and return.
    version  bigint           not null default nextval('item_unit_versions'),
    -- The order that has the unit; null while nobody has.
    order_id uuid,
    -- Where an order looks for free units: it begins at a random place.
    place    double precision not null default random(),
    constraint item_units_pkey primary key (sku, unit)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The units that are free: an order reads as many as it wants, from a random place on, and meets
-- neither the sold ones nor, mostly, those that others have locked. By `place` and not by `unit`, of
-- which the primary key has an index too: in the order of that one, Postgres would at times read all
-- sold units of the item to find that none is free (35 ms for 100,000 of them).
create index item_units_free on item_units (sku, place) where order_id is null;

-- The entries of units. Inherits, so that all that reads the ledger of stock reads these too, while
-- the shop's own entries need no column and no index more.
create table unit_ledger (
    unit bigint not null,
    constraint unit_ledger_pkey primary key (sku, seq)
) inherits (stock_ledger);

-- An order takes a unit at most once, and returns it at most once. Finds the units of an order.
create unique index unit_ledger_once on unit_ledger (order_id, sku, reason, unit);
