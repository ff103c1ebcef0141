-- release: grants the lock to the first waiter in the queue, or frees it. The same call queues the
-- next id of the process, under which its other callers wait, behind those in the queue, or grants
-- it the lock if there are none. (Usually handoff.lua has returned before this.)
--   ARGV: id, lease ms, grant ms, waiter timeout ms, channels, the next id or '',
--     'sharded' or 'plain'
-- Returns {'held' | 'expired' | 'lost', holder, fence}: the state of the lock before, by its lease,
-- and the new holder with its fence: 'next' for the next id, 'other', or 'none' with '0'.
-- Repeating it changes nothing but the last-seen time of the next id.
local id, ttl, grant_ms, waiter_timeout_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, next_id = ARGV[5], ARGV[6]

local already = next_id ~= '' and value_if_held_by(next_id)
if already then
    -- Repeated after a lost response.
    return {'held', 'next', fence_of(already)}
end
local held = value_if_held_by(id)
if not held then
    -- Its lease expired, and it may have queued again since.
    dequeue(id)
end
if held == false then
    if next_id ~= '' then
        enqueue(next_id)
        renew_queue_expiry()
        notify(channels, holder_of(value) or '', 'waiting')
    end
    return {'lost', 'other', fence_of(value) or '0'}
end

local state, first = held and 'held' or 'expired', first_live_waiter(waiter_timeout_ms)
if first and first ~= next_id then
    if next_id ~= '' then
        enqueue(next_id)
        renew_queue_expiry()
    end
    return {state, 'other', grant_to_waiter(first, grant_ms, channels)}
elseif next_id ~= '' then
    dequeue(next_id)
    return {state, 'next', grant(next_id, ttl)}
elseif held then
    free_lock()
end
return {state, 'none', '0'}
