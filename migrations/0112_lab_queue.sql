-- Runs of the lab wait in a queue; one is executed at a time, because the faults and the load of
-- two runs would disturb each other.
drop index lab_runs_one_at_a_time;
create unique index lab_runs_one_running on lab_runs ((true)) where state = 'running';
-- The queue: the next run, and the place of each.
create index lab_runs_queue on lab_runs (created_at, id) where state = 'queued';
-- The signed-in user who requested the run; bounds how many of the queue are one user's.
alter table lab_runs add column user_id uuid references users;

-- Returns the place of a run in the queue, from 1; null if it is not queued.
create function lab_queue_position(run lab_runs) returns bigint language sql stable as $$
    select case when run.state = 'queued' then
        (select count(*) from lab_runs earlier where earlier.state = 'queued'
            and (earlier.created_at, earlier.id) <= (run.created_at, run.id))
    end
$$;
