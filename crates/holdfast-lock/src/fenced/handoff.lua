-- The beginning of release.lua: if the lock is still held and the first owner in the queue is
-- alive, that owner is granted the lock. This does what the rest of release.lua would do, in fewer
-- calls and without the shared functions, because its duration delays the waiters:
-- - a ticket is the time when its owner joined, so a new owner counts as seen then, and is added to
--   KEYS[3] when it polls;
-- - the owner that leaves the queue stays in KEYS[3] until the queue is empty, until the next sweep
--   (which also renews the keys' expiry), or until an acquire call removes it;
-- - an owner that is queued again counts as waiting, without a ZCARD.
local value = redis.call('get', KEYS[1])
if value and string.find(value, ARGV[1] .. ' ', 1, true) == 1 then
    local next_owner, time = ARGV[6], redis.call('time')
    local now_us = time[1] * 1000000 + time[2]
    if next_owner ~= '' then
        -- Before the pop, so that the queue is never empty and keeps its expiry.
        redis.call('zadd', KEYS[2], 'nx', now_us, next_owner)
    end
    local popped = redis.call('zpopmin', KEYS[2])
    local first, ticket = popped[1], popped[2]
    if not first then
        redis.call('del', KEYS[1], KEYS[3])
        return {'held', 'nobody', '0'}
    end
    local since_us = now_us - ARGV[4] * 1000
    if first ~= next_owner and (tonumber(ticket) >= since_us
        or tonumber(redis.call('zscore', KEYS[3], first) or '0') * 1000 >= since_us) then
        local top = redis.call('incrby', KEYS[4], BLOCK)
        if top % (BLOCK * GRANTS_PER_SWEEP) < BLOCK then
            -- Owners that have not polled within the horizon are dead, or have left the queue.
            local dead = redis.call('zrangebyscore', KEYS[3], '-inf', since_us / 1000 - 1)
            for _, owner in ipairs(dead) do
                redis.call('zrem', KEYS[2], owner)
                redis.call('zrem', KEYS[3], owner)
            end
            redis.call('pexpire', KEYS[2], QUEUE_TTL_MS)
            redis.call('pexpire', KEYS[3], QUEUE_TTL_MS)
            redis.call('pexpire', KEYS[4], FENCE_COUNTER_TTL_MS)
        end
        local fence = string.format('%.0f', top - BLOCK + 1)
        local since_ms = string.format('%.0f', math.floor(now_us / 1000))
        redis.call('set', KEYS[1], first .. ' ' .. fence .. '@' .. since_ms, 'px', ARGV[3])
        local waiting = next_owner ~= '' and 1 or redis.call('zcard', KEYS[2])
        if waiting == 0 then
            redis.call('del', KEYS[3])
        end
        redis.call('publish', ARGV[5] .. string.match(first, '^[^.]+'),
            'granted ' .. first .. ' ' .. fence .. ' ' .. waiting .. ' ' .. KEYS[1])
        return {'held', 'another', fence}
    end
end
-- Continues in release.lua: the first owner was dead or ARGV[6], and is dropped; or the lock is not
-- held.
