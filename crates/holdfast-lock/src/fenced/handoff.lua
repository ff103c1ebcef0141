-- The beginning of release.lua: if the lock is still held and the first waiter in the queue is
-- alive, that waiter is granted the lock. This does what the rest of release.lua would do, in fewer
-- calls and without the shared functions, because its duration delays the waiters:
-- - a ticket is the time when its waiter joined, so a new waiter counts as seen then, and is added
--   to KEYS[3] when it polls;
-- - a waiter that leaves the queue stays in KEYS[3] until the queue is empty, until the next sweep
--   (which also renews the keys' expiry), or until an acquire call removes it;
-- - an id that is queued again counts as a waiter, without a ZCARD.
local value = redis.call('get', KEYS[1])
if value and string.find(value, ARGV[1] .. ' ', 1, true) == 1 then
    local next_id, time = ARGV[6], redis.call('time')
    local now_us = time[1] * 1000000 + time[2]
    if next_id ~= '' then
        -- Before the pop, so that the queue is never empty and keeps its expiry.
        redis.call('zadd', KEYS[2], 'nx', now_us, next_id)
    end
    local popped = redis.call('zpopmin', KEYS[2])
    local first, ticket = popped[1], popped[2]
    if not first then
        redis.call('del', KEYS[1], KEYS[3])
        return {'held', 'none', '0'}
    end
    -- A waiter that was last seen before this is dead.
    local alive_since_us = now_us - ARGV[4] * 1000
    if first ~= next_id and (tonumber(ticket) >= alive_since_us
        or tonumber(redis.call('zscore', KEYS[3], first) or '0') * 1000 >= alive_since_us) then
        local last = redis.call('incrby', KEYS[4], FENCES_PER_GRANT)
        if last % (FENCES_PER_GRANT * GRANTS_PER_SWEEP) < FENCES_PER_GRANT then
            -- These waiters are dead, or have left the queue.
            local dead = redis.call('zrangebyscore', KEYS[3], '-inf', alive_since_us / 1000 - 1)
            for _, waiter in ipairs(dead) do
                redis.call('zrem', KEYS[2], waiter)
                redis.call('zrem', KEYS[3], waiter)
            end
            redis.call('pexpire', KEYS[2], QUEUE_TTL_MS)
            redis.call('pexpire', KEYS[3], QUEUE_TTL_MS)
            redis.call('pexpire', KEYS[4], FENCE_COUNTER_TTL_MS)
        end
        local fence = string.format('%.0f', last - FENCES_PER_GRANT + 1)
        local since_ms = string.format('%.0f', math.floor(now_us / 1000))
        redis.call('set', KEYS[1], first .. ' ' .. fence .. '@' .. since_ms, 'px', ARGV[3])
        local waiting = next_id ~= '' and 1 or redis.call('zcard', KEYS[2])
        if waiting == 0 then
            redis.call('del', KEYS[3])
        end
        publish(ARGV[5] .. string.match(first, '^[^.]+'),
            'granted ' .. first .. ' ' .. fence .. ' ' .. waiting .. ' ' .. KEYS[1])
        return {'held', 'other', fence}
    end
end
-- Continues in release.lua: the first waiter was dead or ARGV[6], and is dropped; or the lock is
-- not held.
