-- Publishes a message on the channel of a process. In a Cluster, on a sharded channel of the lock's
-- slot, of which the other nodes do not hear. If nobody listens to that (not yet, or because Redis
-- or the permissions have none), on the plain one, which each node forwards to all others.
local function publish(channel, message)
    if ARGV[#ARGV] == 'sharded' then
        local tag = string.match(KEYS[1], '{(.-)}')
        local receivers = redis.pcall('spublish', channel .. ':{' .. tag .. '}', message)
        if type(receivers) == 'number' and receivers > 0 then
            return
        end
    end
    redis.pcall('publish', channel, message)
end
