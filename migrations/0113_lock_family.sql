-- The strategies under which replicas may sell the shop's own items (`src/lock_family.rs`).
-- At most one row; without one, the first replica records its own.
create table lock_family (
    is_only boolean primary key default true check (is_only),
    -- Name of the family: strategies that exclude each other.
    family text not null,
    -- The strategy of the replica that recorded it, for messages.
    strategy text not null,
    -- Identifies the Redis of a family that excludes by Redis alone: that Redis has a key of this id.
    redis_mark uuid,
    recorded_at timestamptz not null default now()
);
