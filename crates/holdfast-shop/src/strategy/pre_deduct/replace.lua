-- Replaces the value of a counter, unless it changed or is about to. KEYS: the counter, the number of
-- announcements. ARGV: the value that it must have (empty: none), the new value, expiry in ms. Returns
-- 1 if it is replaced.
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
