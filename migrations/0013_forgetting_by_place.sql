-- Keys are forgotten by where they lie, not by how old they are.
--
-- 0007 says that rows lie in the order of their age, and that a block range index finds the old
-- ones. That holds until the first are forgotten: what is deleted makes room, young rows go into old
-- blocks, and a range's bounds widen and never shrink again. In the end every range may hold
-- something old, and the index costs each order a little and finds nothing. A btree would cost each
-- order an insert of its own, for what is asked once an hour.
--
-- So the table is walked instead, a stretch of its blocks per statement (a TID range scan, which
-- needs no index), and a part of the table per run: `src/jobs/walk.rs` says how far.
drop index idempotency_created_at;

-- How far each walk came. Rows of their own, and not the result of the job's last run: a run that is
-- cut off, or that failed at something else, has walked nevertheless.
create table purge_walks (
    kind       text   primary key constraint purge_walks_kind_shape check (kind ~ '^[a-z-]{1,64}$'),
    -- The first block that is not walked yet. Past the end of the table the walk begins anew.
    next_block bigint not null constraint purge_walks_next_block check (next_block >= 0)
);
