-- What was run in the lab, is being run and is to be run. A run is asked for by writing a row; the
-- `holdfast up` that owns the replicas takes it, keeps its progress here, where every replica can
-- read it, and writes what came of it.

create table lab_runs (
    id         uuid        primary key,
    -- What was asked for, as the API takes it.
    wanted     jsonb       not null,
    state      text        not null default 'queued' constraint lab_runs_state
                           check (state in ('queued', 'running', 'done', 'failed')),
    -- What is to be seen while it runs. `frame` grows with every change of it.
    progress   jsonb       not null default '{}',
    frame      bigint      not null default 0,
    -- What came of it.
    outcome    jsonb,
    -- What the visitor thought beforehand.
    guess      text        constraint lab_runs_guess check (length(guess) <= 200),
    -- Whether it was opened from a file: then nobody here has checked what it says.
    from_file  boolean     not null default false,
    created_at timestamptz not null default now(),
    ended_at   timestamptz
);

-- One at a time: faults and loads of two runs would be each other's.
create unique index lab_runs_one_at_a_time on lab_runs ((true)) where state in ('queued', 'running');
create index lab_runs_newest on lab_runs (created_at desc);

-- Whether somebody is there to carry runs out.
create table lab_runner (
    only_one boolean     primary key default true constraint lab_runner_only_one check (only_one),
    seen_at  timestamptz not null
);
