-- The beginning of release.lua: a lock that is held still and has somebody alive at the head of its
-- line goes to them at once. What it does is what the rest of release.lua would do, in fewer calls
-- and without the functions that the scripts share, because somebody waits for each microsecond of
-- it:
--   - that the first one has left the line is not told to the last seen: they are forgotten with
--     the line, swept every 64th time, when the keys get their time again, and by whoever asks for
--     the lock;
--   - whoever is put in line again counts as waiting without being counted.
local value = redis.call('get', KEYS[1])
if value and string.find(value, ARGV[1] .. ' ', 1, true) == 1 then
    local again, time = ARGV[6], redis.call('time')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    if again ~= '' then
        -- Before the first one leaves the line, so that the line keeps its expiry.
        redis.call('zadd', KEYS[2], 'nx', time[1] * 1000000 + time[2], again)
        redis.call('zadd', KEYS[3], now_ms, again)
    end
    local first = redis.call('zpopmin', KEYS[2])[1]
    if not first then
        redis.call('del', KEYS[1], KEYS[3])
        return {'held', 'nobody', '0'}
    end
    local seen = redis.call('zscore', KEYS[3], first)
    if first ~= again and seen and tonumber(seen) >= now_ms - ARGV[4] then
        local top = redis.call('incrby', KEYS[4], 64)
        if top % 4096 < 64 then
            -- Whoever has not asked for so long is dead, or has left.
            local gone = redis.call('zrangebyscore', KEYS[3], '-inf', now_ms - ARGV[4] - 1)
            for _, owner in ipairs(gone) do
                redis.call('zrem', KEYS[2], owner)
                redis.call('zrem', KEYS[3], owner)
            end
            redis.call('pexpire', KEYS[2], 60000)
            redis.call('pexpire', KEYS[3], 60000)
            redis.call('pexpire', KEYS[4], 86400000)
        end
        local fence = string.format('%.0f', top - 63)
        local since = time[1] .. string.sub('00000' .. time[2], -6, -4)
        redis.call('set', KEYS[1], first .. ' ' .. fence .. '@' .. since, 'px', ARGV[3])
        local waiting = again ~= '' and 1 or redis.call('zcard', KEYS[2])
        if waiting == 0 then
            redis.call('del', KEYS[3])
        end
        redis.call('publish', ARGV[5] .. string.match(first, '^[^.]+'),
            'granted ' .. first .. ' ' .. fence .. ' ' .. waiting .. ' ' .. KEYS[1])
        return {'held', 'another', fence}
    end
    -- Dead, and dropped; or nobody but ourselves.
end
