-- release: grants the lock to the first owner in the queue, or frees it. The same call queues an
-- owner for the other waiters of the process, behind those in the queue, or grants it the lock if
-- there are none. (Usually handoff.lua has returned before this.)
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, the owner to queue or ''
-- Returns {'held' | 'expired' | 'lost', holder, fence}: the state of the lock before, and the new
-- holder with its fence: 'next_owner', which the call queued; 'another'; or 'nobody', with '0'.
-- Repeating it changes nothing but the last-seen time of the queued owner.
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, next_owner = ARGV[5], ARGV[6]

local already = next_owner ~= '' and value_if_held_by(next_owner)
if already then
    -- Repeated after a lost response.
    return {'held', 'next_owner', fence_of(already)}
end
local held = value_if_held_by(owner)
if not held then
    -- Its lease expired, and it may have queued again since.
    dequeue(owner)
end
if held == false then
    if next_owner ~= '' then
        enqueue(next_owner)
        renew_queue_expiry()
        notify(channels, owner_of(value) or '', 'waiting')
    end
    return {'lost', 'another', fence_of(value) or '0'}
end

local state, first = held and 'held' or 'expired', first_live_waiter(horizon)
if first and first ~= next_owner then
    if next_owner ~= '' then
        enqueue(next_owner)
        renew_queue_expiry()
    end
    return {state, 'another', grant_to_waiter(first, grant_ms, channels)}
elseif next_owner ~= '' then
    dequeue(next_owner)
    return {state, 'next_owner', grant(next_owner, ttl)}
elseif held then
    free_lock()
end
return {state, 'nobody', '0'}
