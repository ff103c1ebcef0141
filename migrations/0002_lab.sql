-- Lab runs. A run is requested by inserting a row; the `holdfast up` that owns the replicas claims
-- it, writes its progress, which every replica can read, and at the end its result. Runs wait in a
-- queue; one is executed at a time, because the faults and the load of two runs would disturb each
-- other. A race is a run that one replica executes: it needs no `holdfast up`, several run at once,
-- and each replica has a queue of its own, and another one of races with a pause.

create table lab_runs (
    id         uuid        primary key,
    -- The request, as the API accepted it.
    wanted     jsonb       not null,
    state      text        not null default 'queued' constraint lab_runs_state
                           check (state in ('queued', 'running', 'done', 'failed')),
    -- What a page shows while the run is in progress; `frame` is raised by every change of it.
    progress   jsonb       not null default '{}',
    frame      bigint      not null default 0,
    -- The result, and of it what the list of runs shows: that must not read the whole of each.
    outcome    jsonb,
    verdict    jsonb       generated always as (outcome -> 'verdict') stored,
    claim_shown boolean    generated always as ((outcome ->> 'claim_shown')::boolean) stored,
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

-- Returns the place of a run in the queue of its executor, from 1; null if it is not queued. To be
-- called for a run in state 'queued': Postgres reads the whole result of a run that it passes.
create function lab_queue_position(run lab_runs) returns bigint language sql stable as $$
    select case when lab_run_state(run) = 'queued' then
        (select count(*) from lab_runs earlier where earlier.state = 'queued'
            and lab_run_state(earlier) = 'queued'
            and earlier.replica is not distinct from run.replica
            -- A race has a lease if it has a pause.
            and (run.replica is null
                or (earlier.wanted ->> 'ttl_ms' is null) = (run.wanted ->> 'ttl_ms' is null))
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

-- What a visitor did in the lab: a row for each lesson, and for each level of the game.
create table lab_progress (
    -- The name of a lesson, or `level-` and the name of a level.
    activity     text        not null,
    -- The id of the user, or that of the browser's cookie.
    visitor      uuid        not null,
    -- Null for a browser without a session; such rows are deleted after 30 days.
    user_id      uuid        constraint lab_progress_user references users,
    -- The first answer, which counts; later ones do not change it.
    guess        smallint    constraint lab_progress_guess check (guess between 0 and 3),
    answered_at  timestamptz,
    -- When the visitor has last seen the end of a run that was new to them, and which run.
    done_at      timestamptz,
    run_id       uuid        constraint lab_progress_run references lab_runs on delete set null,
    -- The most stars of a level.
    stars        smallint    constraint lab_progress_stars check (stars between 1 and 3),
    -- What a student handed in about the run.
    note         text        constraint lab_progress_note check (length(note) <= 500),
    handed_in_at timestamptz,
    created_at   timestamptz not null default now(),
    primary key (activity, visitor)
);

-- A visitor's rows; the primary key finds those of a lesson.
create index lab_progress_visitor on lab_progress (visitor);
create index lab_progress_user_id on lab_progress (user_id);
-- Used when a run is deleted.
create index lab_progress_run_id on lab_progress (run_id);

-- The class that is taught in this shop, with the code that its students join with; a single row.
create table lab_class (
    only_one boolean     primary key default true constraint lab_class_only_one check (only_one),
    code     text        not null constraint lab_class_code check (code ~ '^[A-HJ-NP-Z2-9]{6}$'),
    since    timestamptz not null default now(),
    -- The page that the teacher shows, where the students can go; null until there is one.
    page     text        constraint lab_class_page check (page ~ '^/([a-z0-9][a-z0-9/-]*)?$'),
    -- The lessons whose votes the class has seen, with the time: later answers are late.
    shown    jsonb       not null default '{}'
);
