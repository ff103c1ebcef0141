-- Lab runs. A run is requested by inserting a row; the `holdfast up` that owns the replicas claims
-- it, writes its progress, which every replica can read, and at the end its result.

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
    ended_at   timestamptz
);

-- At most one open run: the faults and the load of two runs would disturb each other.
create unique index lab_runs_one_at_a_time on lab_runs ((true)) where state in ('queued', 'running');
-- The list of runs, newest first.
create index lab_runs_newest on lab_runs (created_at desc);

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
