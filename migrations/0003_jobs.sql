-- Scheduled jobs, and the state of the jobs that keep some.
--
-- A lock separates two replicas only while a job runs. A replica whose tick is late finds the lock
-- free again and would execute the same tick twice. `job_runs_once` is what makes a run happen once:
-- the row is identified by the job and its due time.

create table job_runs (
    -- In order of start, independent of any clock.
    id               bigint      generated always as identity primary key,
    job              text        not null constraint job_runs_job_shape check (job ~ '^[a-z0-9-]{1,64}$'),
    -- The scheduled time of the tick, not the time of execution.
    due_at           timestamptz not null,
    -- running ──▶ done
    --    ├──▶ failed ──(after a backoff)──▶ running
    --    └──▶ parked   attempts used up: displayed, and retried once at every tick
    state            text        not null constraint job_runs_state
                                 check (state in ('running', 'done', 'failed', 'parked')),
    attempt          integer     not null default 1 constraint job_runs_attempt check (attempt > 0),
    attempts_allowed integer     not null,
    -- The replica that executes it, or executed it last.
    replica          text        not null,
    -- The fence of that attempt's lease. The write of the result requires it, so the result of a
    -- holder whose lease was taken over is a stale write.
    fence            bigint      not null,
    started_at       timestamptz not null default clock_timestamp(),
    ended_at         timestamptz,
    -- The time of the next attempt.
    next_at          timestamptz,
    -- The job's own summary of a successful run.
    result           jsonb,
    -- The error of a failed run.
    error            text,
    -- The previous attempts: replica, times, fence and error.
    previous_attempts jsonb      not null default '[]',
    constraint job_runs_once unique (job, due_at),
    constraint job_runs_ended check ((ended_at is null) = (state = 'running')),
    constraint job_runs_result check ((result is not null) = (state = 'done'))
);

-- At most one open run per job: a tick that falls due while a run is open is covered by that run or
-- by the next tick.
create unique index job_runs_one_open on job_runs (job) where state <> 'done';
-- The newest runs of a job.
create index job_runs_newest on job_runs (job, id desc);

-- Expiries of unpaid orders that failed. They are retried with a growing backoff; after the last
-- attempt they are parked until an admin acts. The job `purge` deletes the rows of orders that were
-- settled since.
create table unpaid_failures (
    order_id  uuid        primary key
                          constraint unpaid_failures_order references orders (id) on delete cascade,
    attempts  integer     not null constraint unpaid_failures_attempts check (attempts > 0),
    -- The last error.
    cause     text        not null,
    failed_at timestamptz not null,
    -- The time of the next attempt; null when parked.
    next_at   timestamptz
);

-- Which worker expires unpaid orders. It only saves work: two workers that both believe to be that one
-- expire an order once all the same, because its status changes by compare-and-set.
create table expiry_lease (
    -- A worker, not a replica: a replica's worker is replaced after a panic.
    holder      uuid        not null,
    -- By Postgres's clock. Another worker takes over after it.
    lease_until timestamptz not null
);
create unique index expiry_lease_one_row on expiry_lease ((true));
insert into expiry_lease (holder, lease_until)
values ('00000000-0000-0000-0000-000000000000', '-infinity');

-- The position of each incremental table scan of the purge job. Not part of a run's result: a run
-- that is interrupted or fails has still made progress.
create table purge_walks (
    kind       text   primary key constraint purge_walks_kind_shape check (kind ~ '^[a-z-]{1,64}$'),
    -- The first block that is not scanned yet. Past the end of the table the scan starts again.
    next_block bigint not null constraint purge_walks_next_block check (next_block >= 0)
);
