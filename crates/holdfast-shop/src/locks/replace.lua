-- Replaces the value of a counter, unless it changed. KEYS[1]: the counter. ARGV: the value that it
-- must have (empty: none), the new value, expiry in ms. Returns 1 if it is replaced.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
