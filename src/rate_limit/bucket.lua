-- Takes permits from a bucket.
--   KEYS: the bucket
--   ARGV: permits and period (µs) of the rate, burst, number of permits to take
-- Returns how many it took, and the time until the bucket is full, in µs.
--
-- A bucket is the time at which it is full again; a full bucket has no key. `rate.rs` computes the
-- same while Redis is unavailable. The clock is this server's, so replicas need no common clock.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local permits, period, burst, requested = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
-- Products are integers below 2^53, so every step is exact.
local function cost(many)
    return math.ceil(many * period / permits)
end
local stored = tonumber(redis.call('get', KEYS[1]) or now)
-- After a clock is set back, a client is blocked for at most the refill time of a burst.
local full_at = math.min(math.max(stored, now), now + cost(burst))
local available = math.floor((now + cost(burst) - full_at) * permits / period)
local granted = math.min(requested, available)
full_at = full_at + cost(granted)
if granted > 0 or stored > now + cost(burst) then
    redis.call('set', KEYS[1], string.format('%.0f', full_at), 'px', math.ceil((full_at - now) / 1000))
end
return { granted, full_at - now }
