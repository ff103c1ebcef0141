-- Announces units that will come to a counter: it is not replaced until they have.
-- KEYS: the counter, the number of announcements. ARGV: expiry of the announcement in ms. Returns 1,
-- or nothing if there is no counter.
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return 1
