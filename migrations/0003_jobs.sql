-- Scheduled jobs, and the state of the jobs that keep some.
--
-- A lock would separate two replicas only while a job runs: a replica whose tick is late finds it
-- free again. `job_runs_once` is what makes a run happen once: the row is identified by the job and
-- its due time.

create table job_runs (
    -- In order of start, independent of any clock.
    id         bigint      generated always as identity primary key,
    job        text        not null constraint job_runs_job_shape check (job ~ '^[a-z0-9-]{1,64}$'),
    -- The scheduled time of the tick, not the time of execution.
    due_at     timestamptz not null,
    -- running ──▶ done
    --    └──▶ failed ──(after a backoff)──▶ running
    state      text        not null constraint job_runs_state
                           check (state in ('running', 'done', 'failed')),
    -- The fencing token: a renewal and the write of the result require it, so that those of a holder
    -- whose run was taken over change nothing.
    attempt    integer     not null default 1 constraint job_runs_attempt check (attempt > 0),
    -- The replica that executes it, or executed it last.
    replica    text        not null,
    started_at timestamptz not null default clock_timestamp(),
    ended_at   timestamptz,
    -- From this time another attempt may begin: the end of the lease, or of the pause after a failure.
    next_at    timestamptz,
    -- The job's own summary of a successful run.
    result     jsonb,
    -- The error of a failed attempt.
    error      text,
    constraint job_runs_once unique (job, due_at),
    constraint job_runs_ended check ((ended_at is null) = (state = 'running')),
    constraint job_runs_next check ((next_at is null) = (state = 'done')),
    constraint job_runs_result check ((result is not null) = (state = 'done'))
);

create index job_runs_open on job_runs (job) where state <> 'done';
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
-- No migration inserts a row, here or elsewhere: it would stand in the way of a dump of the data.
create unique index expiry_lease_one_row on expiry_lease ((true));

-- The position of the purge job's incremental scan of the key records. Not part of a run's result: a
-- run that is interrupted or fails has still made progress.
create table purge_walk (
    -- The first block that is not scanned yet. Past the end of the table the scan starts again.
    next_block bigint not null constraint purge_walk_next_block check (next_block >= 0)
);
create unique index purge_walk_one_row on purge_walk ((true));
