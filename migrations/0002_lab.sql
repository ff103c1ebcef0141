-- Lab runs. A run is requested by inserting a row; the `holdfast up` that owns the replicas claims
-- it, writes its progress, which every replica can read, and at the end its result. Runs wait in a
-- queue; one is executed at a time, because the faults and the load of two runs would disturb each
-- other. A race is a run that one replica executes: it needs no `holdfast up`, several run at once,
-- and each replica has a queue of its own.

create table lab_runs (
    id         uuid        primary key,
    -- The request, as the API accepted it.
    wanted     jsonb       not null,
    state      text        not null default 'queued' constraint lab_runs_state
                           check (state in ('queued', 'running', 'done', 'failed')),
    -- What a page shows while the run is in progress; `frame` is raised by every change of it.
    progress   jsonb       not null default '{}',
    frame      bigint      not null default 0,
    -- The result.
    outcome    jsonb,
    -- The visitor's prediction.
    guess      text        constraint lab_runs_guess check (length(guess) <= 200),
    -- Whether it was imported from a file: its contents are then not verified.
    from_file  boolean     not null default false,
    created_at timestamptz not null default now(),
    ended_at   timestamptz,
    -- The signed-in user who requested the run; bounds how many of the queue are one user's.
    user_id    uuid        references users,
    -- The replica that executes a race; null for the runs that `holdfast up` executes.
    replica    text,
    -- The item that a race sells; null until it begins.
    sku        text        collate "C"
);

create unique index lab_runs_one_running on lab_runs ((true))
    where state = 'running' and replica is null;
-- The queue of each executor: its next run, and the place of each.
create index lab_runs_queue on lab_runs (replica, created_at, id) where state = 'queued';
-- The list of runs, newest first.
create index lab_runs_newest on lab_runs (created_at desc) where replica is null;
-- The oldest races, which are pruned.
create index lab_runs_races on lab_runs (id) where replica is not null;

-- Returns the state of a run. A race whose replica was killed has no result; five minutes are longer
-- than a full queue of races takes.
create function lab_run_state(run lab_runs) returns text language sql stable as $$
    select case
        when run.replica is not null and run.state in ('queued', 'running')
            and run.created_at < now() - interval '5 minutes' then 'failed'
        else run.state
    end
$$;

-- Returns the place of a run in the queue of its executor, from 1; null if it is not queued.
create function lab_queue_position(run lab_runs) returns bigint language sql stable as $$
    select case when lab_run_state(run) = 'queued' then
        (select count(*) from lab_runs earlier where earlier.state = 'queued'
            and lab_run_state(earlier) = 'queued'
            and earlier.replica is not distinct from run.replica
            and (earlier.created_at, earlier.id) <= (run.created_at, run.id))
    end
$$;

-- The heartbeat of the process that executes runs; a single row.
create table lab_runner (
    only_one boolean     primary key default true constraint lab_runner_only_one check (only_one),
    seen_at  timestamptz not null
);

-- Effects of the lab's scheduled job: one row per execution, so that executions can be counted.
create table lab_marks (
    id      bigint      generated always as identity primary key,
    due_at  timestamptz not null,
    replica text        not null,
    -- The due time, when the effect is made idempotent; the constraint then admits one row.
    once    text        constraint lab_marks_once unique,
    at      timestamptz not null default clock_timestamp()
);

create index lab_marks_due_at on lab_marks (due_at);
