-- Adds units to a counter, if it exists: a missing one is loaded from the row, which has them.
-- KEYS[1]: the counter; KEYS[2]: the number of announcements, if they were announced. ARGV: units,
-- expiry in ms. Returns 1 if it exists.
if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 and redis.call('DECR', KEYS[2]) <= 0 then
  redis.call('DEL', KEYS[2])
end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
