-- The beginning of release.lua: a lock that is held still and has somebody alive at the head of its
-- line goes to them at once. What it does is what the rest of release.lua would do, in fewer calls
-- and without the functions that the scripts share, because somebody waits for each microsecond of
-- it:
--   - a ticket says when its owner asked first, so who is new in line was seen then, and is written
--     down among the last seen when they ask again;
--   - that the first one has left the line is not told to the last seen: they are forgotten with
--     the line, swept every 64th time, when the keys get their time again, and by whoever asks for
--     the lock;
--   - whoever is put in line again counts as waiting without being counted.
local value = redis.call('get', KEYS[1])
if value and string.find(value, ARGV[1] .. ' ', 1, true) == 1 then
    local again, time = ARGV[6], redis.call('time')
    local now_us = time[1] * 1000000 + time[2]
    if again ~= '' then
        -- Before the first one leaves the line, so that the line keeps its expiry.
        redis.call('zadd', KEYS[2], 'nx', now_us, again)
    end
    local popped = redis.call('zpopmin', KEYS[2])
    local first, ticket = popped[1], popped[2]
    if not first then
        redis.call('del', KEYS[1], KEYS[3])
        return {'held', 'nobody', '0'}
    end
    local since_us = now_us - ARGV[4] * 1000
    if first ~= again and (tonumber(ticket) >= since_us
        or tonumber(redis.call('zscore', KEYS[3], first) or '0') * 1000 >= since_us) then
        local top = redis.call('incrby', KEYS[4], 64)
        if top % 4096 < 64 then
            -- Whoever has not asked for so long is dead, or has left.
            local gone = redis.call('zrangebyscore', KEYS[3], '-inf', since_us / 1000 - 1)
            for _, owner in ipairs(gone) do
                redis.call('zrem', KEYS[2], owner)
                redis.call('zrem', KEYS[3], owner)
            end
            redis.call('pexpire', KEYS[2], 60000)
            redis.call('pexpire', KEYS[3], 60000)
            redis.call('pexpire', KEYS[4], 86400000)
        end
        local fence = string.format('%.0f', top - 63)
        local since_ms = string.format('%.0f', math.floor(now_us / 1000))
        redis.call('set', KEYS[1], first .. ' ' .. fence .. '@' .. since_ms, 'px', ARGV[3])
        local waiting = again ~= '' and 1 or redis.call('zcard', KEYS[2])
        if waiting == 0 then
            redis.call('del', KEYS[3])
        end
        redis.call('publish', ARGV[5] .. string.match(first, '^[^.]+'),
            'granted ' .. first .. ' ' .. fence .. ' ' .. waiting .. ' ' .. KEYS[1])
        return {'held', 'another', fence}
    end
end
-- Dead, and dropped; or nobody but ourselves; or not held any more.
