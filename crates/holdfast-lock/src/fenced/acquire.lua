-- acquire, and poll: acquires the lock if possible; otherwise queues the caller or keeps its place,
-- and grants a free lock to the first waiter in the queue. Repeating it with the same id changes
-- nothing but its last-seen time, or the end of its lease.
--   ARGV: id, lease ms, grant ms, waiter timeout ms, channels, '1' to wait or '0' to only try,
--     'sharded' or 'plain'
-- Returns {'acquired', fence, number of waiters} or {'busy', the holder's fence, '1' if this call
-- queued the caller}.
local id, ttl, grant_ms, waiter_timeout_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, waits = ARGV[5], ARGV[6] == '1'

local held = value_if_held_by(id)
if held then
    -- Granted since the last poll, or repeated after a lost response.
    redis.call('pexpire', KEYS[1], ttl)
    return {'acquired', fence_of(held), count_waiters()}
end
-- Free, and without live waiters.
if held == nil and not first_live_waiter(waiter_timeout_ms) then
    return {'acquired', grant(id, ttl), 0}
end
if not waits then
    return {'busy', value and fence_of(value) or '0', '0'}
end
local queued = enqueue(id) and '1' or '0'
renew_queue_expiry()
remove_dead_waiters(waiter_timeout_ms)
if held == nil then
    local first = first_live_waiter(waiter_timeout_ms)
    if first == id then
        dequeue(id)
        return {'acquired', grant(id, ttl), count_waiters()}
    end
    return {'busy', grant_to_waiter(first, grant_ms, channels), queued}
elseif queued == '1' then
    -- From now on the holder's process makes only a few more local handoffs.
    notify(channels, holder_of(value) or '', 'waiting')
end
return {'busy', fence_of(value) or '0', queued}
