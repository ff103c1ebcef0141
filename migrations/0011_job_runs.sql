-- What the shop does when nobody is asking, and who did it.
--
-- A lock keeps two replicas apart while a job runs. It says nothing of the next minute: a replica
-- whose tick comes a moment late finds the lock free again and does the same work a second time.
-- What makes a run happen once is this row, named by the job and the time it was due.

create table job_runs (
    -- In the order in which they were begun, whatever the clock said then.
    id               bigint      generated always as identity primary key,
    job              text        not null constraint job_runs_job_shape check (job ~ '^[a-z0-9-]{1,64}$'),
    -- The tick of its timetable, not when somebody got round to it.
    due_at           timestamptz not null,
    -- running ──▶ done
    --    └──▶ failed ──(tried again after a pause)──▶ running
    --    └──▶ parked   it has failed too often: shown, and tried once at every tick
    state            text        not null constraint job_runs_state
                                 check (state in ('running', 'done', 'failed', 'parked')),
    attempt          integer     not null default 1 constraint job_runs_attempt check (attempt > 0),
    attempts_allowed integer     not null,
    -- Who has it, or had it last.
    replica          text        not null,
    -- Of the lock of that attempt. Whoever wants to write how it ended shows it: a holder that was
    -- followed by another comes too late.
    fence            bigint      not null,
    started_at       timestamptz not null default clock_timestamp(),
    ended_at         timestamptz,
    -- When it is tried again.
    next_at          timestamptz,
    -- What came of it, in the job's own words.
    result           jsonb,
    -- Why not.
    trouble          text,
    -- The attempts before this one: who, when, with which fence, and what went wrong.
    earlier          jsonb       not null default '[]',
    constraint job_runs_once unique (job, due_at),
    constraint job_runs_ended check ((ended_at is null) = (state = 'running')),
    constraint job_runs_result check ((result is not null) = (state = 'done'))
);

-- One run of a job is open at a time. What falls due meanwhile is done by it, or by the tick after.
create unique index job_runs_one_open on job_runs (job) where state <> 'done';
create index job_runs_newest on job_runs (job, id desc);

-- What the lab's own job does: it leaves a mark, so that marks can be counted.
create table lab_marks (
    id      bigint      generated always as identity primary key,
    due_at  timestamptz not null,
    replica text        not null,
    fence   bigint,
    -- The job and its time, where the mark bears them: such a mark is made once, whoever makes it.
    once    text        constraint lab_marks_once unique,
    at      timestamptz not null default clock_timestamp()
);

create index lab_marks_due_at on lab_marks (due_at);

-- Sessions that are over are looked for every hour.
create index sessions_expires_at on sessions (expires_at);
