-- raise_fence: Redis lost its fence counter (a flush, a failover), and a row of the database has a
-- higher fence. Raises the counter to the row's fence, never lowers it, and gives the holder the
-- fences of a new grant.
--   ARGV: id, the row's fence
-- Returns {'held', fence, number of waiters} or {'lost'}.
local held = value_if_held_by(ARGV[1])
if not held then
    return {'lost'}
end
if tonumber(redis.call('get', KEYS[4]) or '0') < tonumber(ARGV[2]) then
    redis.call('set', KEYS[4], ARGV[2])
end
local last = redis.call('incrby', KEYS[4], FENCES_PER_GRANT)
redis.call('pexpire', KEYS[4], FENCE_COUNTER_TTL_MS)
local fence = format_integer(last - FENCES_PER_GRANT + 1)
local since = string.match(held, '@(%d+)$')
redis.call('set', KEYS[1], ARGV[1] .. ' ' .. fence .. '@' .. since, 'keepttl')
return {'held', fence, count_waiters()}
