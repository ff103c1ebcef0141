-- release: grants the lock to the first owner in the queue, or frees it. The same call queues an
-- owner for the other waiters of the process, behind those in the queue, or grants it the lock if
-- there are none. (Usually handoff.lua has returned before this.)
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, the owner to queue or ''
-- Returns {'held' | 'expired' | 'lost', holder, fence}: the state of the lock before, and the new
-- holder with its fence: 'again', the owner that was queued; 'another'; or 'nobody', with '0'.
-- Repeating it changes nothing but the last-seen time of the queued owner.
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, again = ARGV[5], ARGV[6]

local already = again ~= '' and value_if_held_by(again)
if already then
    -- Repeated after a lost response.
    return {'held', 'again', fence_of(already)}
end
local held = value_if_held_by(owner)
if not held then
    -- Its lease expired, and it may have queued again since.
    dequeue(owner)
end
if held == false then
    if again ~= '' then
        enqueue(again)
        renew_queue_expiry()
        notify(channels, owner_of(value) or '', 'waiting')
    end
    return {'lost', 'another', fence_of(value) or '0'}
end

local was, first = held and 'held' or 'expired', first_live_waiter(horizon)
if first and first ~= again then
    if again ~= '' then
        enqueue(again)
        renew_queue_expiry()
    end
    return {was, 'another', grant_to_waiter(first, grant_ms, channels)}
elseif again ~= '' then
    dequeue(again)
    return {was, 'again', grant(again, ttl)}
elseif held then
    free_lock()
end
return {was, 'nobody', '0'}
