-- Takes permits from several buckets: some for waiting requests, and some as a lease, to be spent
-- until the lease ends.
--   KEYS: the buckets
--   ARGV: per bucket permits, period, burst, refill, lease (times in µs), number of permits to
--         take, number of permits to lease
-- Returns per bucket the permits taken, leased and left, the wait for the next permit, and the time
-- until the bucket is full (times in µs).
--
-- A bucket is the time at which it is full again; a full bucket has no key. `bucket.rs`
-- explains the algorithm and is tested to compute the same. The clock is this server's, so replicas
-- need no common clock. Nothing is written where nothing changes.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
-- All values are integers below 2^53, so every step is exact.
local function floored(a, b)
    return (a - a % b) / b
end
local answers = {}
for at, key in ipairs(KEYS) do
    local first = (at - 1) * 7
    local permits, period, burst = ARGV[first + 1] + 0, ARGV[first + 2] + 0, ARGV[first + 3] + 0
    local refill, lease = ARGV[first + 4] + 0, ARGV[first + 5] + 0
    local at_once, ahead = ARGV[first + 6] + 0, ARGV[first + 7] + 0
    local brim = now + refill
    local function room(from)
        return math.min(floored(math.max(brim - from, 0) * permits, period), burst)
    end
    local function cost(many)
        return floored(many * period + permits - 1, permits)
    end
    local stored = tonumber(redis.call('get', key) or now)
    -- After a clock is set back, a client is blocked for at most the refill time of a burst.
    local full_at = math.min(math.max(stored, now), brim)
    local had = math.min(at_once, room(full_at))
    local leased, wait = 0, 0
    full_at = full_at + cost(had)
    if had == at_once then
        local from = math.max(full_at, now + lease)
        leased = math.min(ahead, room(from))
        if leased > 0 then
            full_at = from + cost(leased)
        end
    else
        wait = full_at + cost(1) - brim
    end
    if had + leased > 0 or stored > brim then
        redis.call('set', key, string.format('%.0f', full_at), 'px', math.ceil((full_at - now) / 1000))
    end
    answers[#answers + 1] = { had, leased, room(full_at), wait, full_at - now }
end
return answers
