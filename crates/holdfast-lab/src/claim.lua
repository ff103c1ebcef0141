-- Claims the member of a delay queue that is due first: a sorted set, whose scores are due times.
--
-- KEYS   1 the sorted set
-- ARGV   1 visibility timeout, in ms
-- Returns the member; nil if none is due.
--
-- A claim postpones the member and does not remove it: unless the worker removes it in time, it is
-- due again. So a worker that dies loses nothing, and delivery is at least once. As a script is
-- executed alone, two workers never get the same member at once.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, 1)
if #due == 0 then
    return nil
end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), due[1])
return due[1]
