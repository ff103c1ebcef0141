-- Shared by the scripts of the fenced lock: each consists of constants.lua, this text and its own.
--
-- All keys of one lock lie in one slot:
--   KEYS[1]  the lock        "<id> <fence>@<since, Unix ms>"; its expiry is the lease
--   KEYS[2]  the queue       ids by ticket (server time of joining, in microseconds)
--   KEYS[3]  last seen       the same ids by the time of their last poll, in milliseconds; an id
--                            that is missing was last seen when it received its ticket
--   KEYS[4]  fence counter   the last fence issued
-- An id, "<process>.<uuid>" or "<process>.<uuid>.mail", is that of one acquisition: in the queue
-- that of a waiter, in the lock that of the holder. Each process subscribes to a channel of its own.
--
-- A waiter that has not polled for the waiter timeout counts as dead, and is skipped.
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

-- Returns the lock's value if this id held it when the script began, false if another one did, nil
-- if it was free.
local function value_if_held_by(id)
    if not value then
        return nil
    end
    return string.sub(value, 1, #id + 1) == id .. ' ' and value
end

local function fence_of(held)
    return string.match(held, ' (%d+)@')
end

local function holder_of(held)
    return string.match(held, '^(%S+) ')
end

local function dequeue(id)
    redis.call('zrem', KEYS[2], id)
    redis.call('zrem', KEYS[3], id)
end

-- Queues a waiter, or keeps its place. Returns whether it is new.
local function enqueue(waiter)
    local new = redis.call('zadd', KEYS[2], 'nx', format_integer(now_us()), waiter)
    redis.call('zadd', KEYS[3], format_integer(now_ms()), waiter)
    return new == 1
end

-- Renews the expiry of the queue. Waiters poll within a fraction of it, so that only a queue whose
-- waiters are all dead expires.
local function renew_queue_expiry()
    redis.call('pexpire', KEYS[2], QUEUE_TTL_MS)
    redis.call('pexpire', KEYS[3], QUEUE_TTL_MS)
end

-- Drops the dead waiters that have polled. (first_live_waiter drops those that never did.)
local function remove_dead_waiters(waiter_timeout_ms)
    local before = format_integer(now_ms() - waiter_timeout_ms)
    for _, waiter in ipairs(redis.call('zrangebyscore', KEYS[3], '-inf', '(' .. before)) do
        dequeue(waiter)
    end
end

-- Returns the first live waiter in the queue. Drops the dead ones before it.
local function first_live_waiter(waiter_timeout_ms)
    local alive_since_us = now_us() - waiter_timeout_ms * 1000
    while true do
        local place = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
        local first, ticket = place[1], place[2]
        if not first or tonumber(ticket) >= alive_since_us
            or tonumber(redis.call('zscore', KEYS[3], first) or '0') * 1000 >= alive_since_us then
            return first
        end
        dequeue(first)
    end
end

-- Frees a lock that has no waiters. The ids that are still in KEYS[3] have left the queue.
local function free_lock()
    redis.call('del', KEYS[1], KEYS[3])
end

-- Makes an id that is not queued the holder, with the fences of a grant. Returns the first of them.
local function grant(id, ttl_ms)
    local last = redis.call('incrby', KEYS[4], FENCES_PER_GRANT)
    redis.call('pexpire', KEYS[4], FENCE_COUNTER_TTL_MS)
    local fence = format_integer(last - FENCES_PER_GRANT + 1)
    local since = format_integer(now_ms())
    redis.call('set', KEYS[1], id .. ' ' .. fence .. '@' .. since, 'px', ttl_ms)
    return fence
end

-- Publishes a message to the process of a holder or waiter. A hint: a process that misses it polls
-- soon.
local function notify(channels, id, message)
    local process = string.match(id, '^([^.]+)%.')
    if process then
        publish(channels .. process, message .. ' ' .. KEYS[1])
    end
end

local function count_waiters()
    return redis.call('zcard', KEYS[2])
end

-- Grants a free lock to the first waiter in the queue, for the time in which it must confirm the
-- grant. No other waiter can acquire the lock before it. Returns the first fence.
local function grant_to_waiter(waiter, grant_ms, channels)
    local fence = grant(waiter, grant_ms)
    dequeue(waiter)
    notify(channels, waiter, 'granted ' .. waiter .. ' ' .. fence .. ' ' .. count_waiters())
    return fence
end
