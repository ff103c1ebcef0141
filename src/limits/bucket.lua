-- Takes permits from several buckets: of each some for those who wait for them now, and some as a
-- lease, to be spent within the time the lease lasts.
--   KEYS: the buckets
--   ARGV: for each permits, period, burst, refill, lease (all times in µs), how many at once, how
--         many ahead
-- Returns for each how many at once, how many ahead, how many are left, how long to wait for one,
-- how long until it is full.
--
-- A bucket is the moment at which it will be full again; a full one is no key at all. src/limits/
-- bucket.rs says why it is so and holds this script to the same sums. The time is this server's:
-- replicas need not agree on one. Nothing is written where nothing changes.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
-- Whole numbers below 2^53, so that every step is exact.
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
    -- A clock that was set back must not shut anybody out for longer than a burst takes.
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
