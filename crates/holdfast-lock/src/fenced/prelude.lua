-- Shared by the scripts of the fenced lock: each consists of constants.lua, this text and its own.
--
-- All keys of one lock lie in one slot:
--   KEYS[1]  the lock        "<owner> <fence>@<since, Unix ms>"; its expiry is the lease
--   KEYS[2]  the queue       waiting owners by ticket (server time of joining, in microseconds)
--   KEYS[3]  last seen       the same owners by the time of their last poll, in milliseconds; an
--                            owner that is missing was last seen when it received its ticket
--   KEYS[4]  fence counter   the last fence issued
-- An owner is "<process>.<lease>": each process subscribes to a channel of its own.
--
-- All times are the server's. Numbers stay below 2^53, where a double is exact.

-- Each call of Redis delays the waiters, so it is made once, and only where it is needed.
local value = redis.call('get', KEYS[1])

local cached_now_us
local function now_us()
    if not cached_now_us then
        local time = redis.call('time')
        cached_now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    return cached_now_us
end

local function format_integer(number)
    return string.format('%.0f', number)
end

local function now_ms()
    return math.floor(now_us() / 1000)
end

-- Returns the lock's value if this owner held it when the script began, false if another owner did,
-- nil if it was free.
local function value_if_held_by(owner)
    if not value then
        return nil
    end
    return string.sub(value, 1, #owner + 1) == owner .. ' ' and value
end

local function fence_of(held)
    return string.match(held, ' (%d+)@')
end

local function owner_of(held)
    return string.match(held, '^(%S+) ')
end

local function dequeue(owner)
    redis.call('zrem', KEYS[2], owner)
    redis.call('zrem', KEYS[3], owner)
end

-- Queues an owner, or keeps its place. Returns whether it is new.
local function enqueue(owner)
    local new = redis.call('zadd', KEYS[2], 'nx', format_integer(now_us()), owner)
    redis.call('zadd', KEYS[3], format_integer(now_ms()), owner)
    return new == 1
end

-- Renews the expiry of the queue. Waiters poll within a fraction of it, so that only an abandoned
-- queue expires.
local function renew_queue_expiry()
    redis.call('pexpire', KEYS[2], QUEUE_TTL_MS)
    redis.call('pexpire', KEYS[3], QUEUE_TTL_MS)
end

-- Drops the owners whose last poll is older than the horizon: they count as dead.
-- (first_live_waiter drops those that never polled.)
local function remove_dead_waiters(horizon_ms)
    local before = format_integer(now_ms() - horizon_ms)
    for _, owner in ipairs(redis.call('zrangebyscore', KEYS[3], '-inf', '(' .. before)) do
        dequeue(owner)
    end
end

-- Returns the first live owner in the queue. Drops the dead owners before it.
local function first_live_waiter(horizon_ms)
    local since_us = now_us() - horizon_ms * 1000
    while true do
        local place = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
        local first, ticket = place[1], place[2]
        if not first or tonumber(ticket) >= since_us
            or tonumber(redis.call('zscore', KEYS[3], first) or '0') * 1000 >= since_us then
            return first
        end
        dequeue(first)
    end
end

-- Frees a lock that has no waiters. The owners that are still in KEYS[3] have left the queue.
local function free_lock()
    redis.call('del', KEYS[1], KEYS[3])
end

-- Makes an owner that is not queued the holder, with a block of fences. Returns the first fence.
local function grant(owner, ttl_ms)
    local top = redis.call('incrby', KEYS[4], BLOCK)
    redis.call('pexpire', KEYS[4], FENCE_COUNTER_TTL_MS)
    local fence = format_integer(top - BLOCK + 1)
    local since = format_integer(now_ms())
    redis.call('set', KEYS[1], owner .. ' ' .. fence .. '@' .. since, 'px', ttl_ms)
    return fence
end

-- Publishes a message to an owner's process. A hint: a process that misses it polls soon.
local function notify(channels, owner, message)
    local process = string.match(owner, '^([^.]+)%.')
    if process then
        redis.call('publish', channels .. process, message .. ' ' .. KEYS[1])
    end
end

local function count_waiters()
    return redis.call('zcard', KEYS[2])
end

-- Grants a free lock to the first owner in the queue, for the time in which it must confirm the
-- grant. No other owner can acquire the lock before it. Returns the first fence.
local function grant_to_waiter(first, grant_ms, channels)
    local fence = grant(first, grant_ms)
    dequeue(first)
    notify(channels, first, 'granted ' .. first .. ' ' .. fence .. ' ' .. count_waiters())
    return fence
end
