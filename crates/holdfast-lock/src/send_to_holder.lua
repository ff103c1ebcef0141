-- send_to_holder: publishes a message to the process of a fenced lock's holder, while it holds the
-- lock under the lease that the sender knows. In a Cluster on a sharded channel, and if nobody
-- listens to that, on the plain one with the key, for which the receiver then subscribes.
--   KEYS: the lock   ARGV: lease, channel, message, 'sharded' or 'plain'
-- Returns the current lease or '', and the number of receivers: -1 if it is another lease, -2 if
-- the message can't be published.
local value = redis.call('get', KEYS[1])
local lease = value and string.match(value, '^(%S+) %d+@') or ''
if lease ~= ARGV[1] then
    return {lease, -1}
end
local channel, message = ARGV[2], ARGV[3]
if ARGV[4] == 'sharded' then
    local tag = string.match(KEYS[1], '{(.-)}')
    local receivers = redis.pcall('spublish', channel .. ':{' .. tag .. '}', message)
    if type(receivers) == 'number' and receivers > 0 then
        return {lease, receivers}
    end
    message = #KEYS[1] .. ':' .. KEYS[1] .. message
end
local receivers = redis.pcall('publish', channel, message)
return {lease, type(receivers) == 'number' and receivers or -2}
