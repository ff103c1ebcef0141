-- acquire, and poll: acquires the lock if possible; otherwise queues the owner or keeps its place,
-- and grants a free lock to the first owner in the queue. Repeating it with the same owner changes
-- nothing but its last-seen time, or the end of its lease.
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, '1' to wait or '0' to only try
-- Returns {'held', fence, number of waiters} or {'taken', the holder's fence, '1' if this call
-- queued the owner}.
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, waits = ARGV[5], ARGV[6] == '1'

local held = value_if_held_by(owner)
if held then
    -- Granted since the last poll, or repeated after a lost response.
    redis.call('pexpire', KEYS[1], ttl)
    return {'held', fence_of(held), count_waiters()}
end
-- Free, and without live waiters.
if held == nil and not first_live_waiter(horizon) then
    return {'held', grant(owner, ttl), 0}
end
if not waits then
    return {'taken', value and fence_of(value) or '0', '0'}
end
local queued = enqueue(owner) and '1' or '0'
renew_queue_expiry()
remove_dead_waiters(horizon)
if held == nil then
    local first = first_live_waiter(horizon)
    if first == owner then
        dequeue(owner)
        return {'held', grant(owner, ttl), count_waiters()}
    end
    return {'taken', grant_to_waiter(first, grant_ms, channels), queued}
elseif queued == '1' then
    -- From now on the holder's process makes only a few more local handoffs.
    notify(channels, owner_of(value) or '', 'waiting')
end
return {'taken', fence_of(value) or '0', queued}
