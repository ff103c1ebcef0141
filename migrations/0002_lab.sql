-- Lab runs. A run is requested by inserting a row; the `holdfast up` that owns the replicas claims
-- it, writes its progress, which every replica can read, and at the end its result. Runs wait in a
-- queue; one is executed at a time, because the faults and the load of two runs would disturb each
-- other.

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
    user_id    uuid        references users
);

create unique index lab_runs_one_running on lab_runs ((true)) where state = 'running';
-- The queue: the next run, and the place of each.
create index lab_runs_queue on lab_runs (created_at, id) where state = 'queued';
-- The list of runs, newest first.
create index lab_runs_newest on lab_runs (created_at desc);

-- Returns the place of a run in the queue, from 1; null if it is not queued.
create function lab_queue_position(run lab_runs) returns bigint language sql stable as $$
    select case when run.state = 'queued' then
        (select count(*) from lab_runs earlier where earlier.state = 'queued'
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
    fence   bigint,
    -- Job and due time, when the effect is made idempotent; the constraint then admits one row.
    once    text        constraint lab_marks_once unique,
    at      timestamptz not null default clock_timestamp()
);

create index lab_marks_due_at on lab_marks (due_at);

-- Races of the first page. A replica inserts the row when it accepts a race, and stores the result at
-- the end, so that every replica can show it. A row without a result whose replica has stopped is
-- read as failed, by its age.

create table races (
    id         uuid        primary key,
    -- The replica that runs it: a position in the queue counts the races of one replica.
    replica    text        not null,
    request    jsonb       not null,
    state      text        not null constraint races_state
                           check (state in ('queued', 'running', 'done', 'failed')),
    -- The item that was sold; null until the race begins.
    sku        text collate "C",
    result     jsonb,
    created_at timestamptz not null default now()
);

-- The queue of a replica. Partial: a race leaves the index when it begins.
create index races_queued on races (replica, id) where state = 'queued';
