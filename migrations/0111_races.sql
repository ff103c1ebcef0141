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
