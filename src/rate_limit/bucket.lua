-- Takes permits from a bucket: some for waiting requests, and some as a lease, to be spent until the
-- lease ends.
--   KEYS: the bucket
--   ARGV: permits, period, burst, refill, lease (times in µs), number of permits to take, number of
--         permits to lease
-- Returns the permits taken, leased and left, the wait for the next permit, and the time until the
-- bucket is full (times in µs).
--
-- A bucket is the time at which it is full again; a full bucket has no key. `bucket.rs`
-- explains the algorithm and is tested to compute the same. The clock is this server's, so replicas
-- need no common clock. Nothing is written where nothing changes.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
-- All values are integers below 2^53, so every step is exact.
local function divide(a, b)
    return (a - a % b) / b
end
local permits, period, burst = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0
local refill, lease = ARGV[4] + 0, ARGV[5] + 0
local requested, to_lease = ARGV[6] + 0, ARGV[7] + 0
local max_full_at = now + refill
local function available(from)
    return math.min(divide(math.max(max_full_at - from, 0) * permits, period), burst)
end
local function cost(many)
    return divide(many * period + permits - 1, permits)
end
local stored = tonumber(redis.call('get', KEYS[1]) or now)
-- After a clock is set back, a client is blocked for at most the refill time of a burst.
local full_at = math.min(math.max(stored, now), max_full_at)
local granted = math.min(requested, available(full_at))
local leased, wait = 0, 0
full_at = full_at + cost(granted)
if granted == requested then
    local from = math.max(full_at, now + lease)
    leased = math.min(to_lease, available(from))
    if leased > 0 then
        full_at = from + cost(leased)
    end
else
    wait = full_at + cost(1) - max_full_at
end
if granted + leased > 0 or stored > max_full_at then
    redis.call('set', KEYS[1], string.format('%.0f', full_at), 'px', math.ceil((full_at - now) / 1000))
end
return { granted, leased, available(full_at), wait, full_at - now }
