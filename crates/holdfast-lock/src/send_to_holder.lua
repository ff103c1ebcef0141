-- send_to_holder: publishes a message to the process of a fenced lock's holder, while it holds the
-- lock under the lease that the sender knows.
--   KEYS: the lock   ARGV: lease, channel, message
-- Returns the current lease or '', and the number of receivers: -1 if it is another lease, -2 if
-- the message can't be published.
local value = redis.call('get', KEYS[1])
local lease = value and string.match(value, '^(%S+) %d+@') or ''
if lease ~= ARGV[1] then
    return {lease, -1}
end
local receivers = redis.pcall('publish', ARGV[2], ARGV[3])
return {lease, type(receivers) == 'number' and receivers or -2}
