-- Remembers an address of a user.
--
-- KEYS   the user's addresses, with the time of each
-- ARGV   1 the address
--        2 time for which it is remembered, in ms
--        3 upper bound of the addresses of a user
--
-- The addresses that were not used for that time are removed, then the longest unused ones beyond
-- the upper bound.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
