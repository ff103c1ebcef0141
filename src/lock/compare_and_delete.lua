-- Deletes those locks that are still their owner's: KEYS[i] if its value is ARGV[i]. In one script,
-- because between a GET and a DEL a lock may expire and get another owner.
-- Returns how many it deleted.
local deleted = 0
for at, key in ipairs(KEYS) do
    if redis.call('get', key) == ARGV[at] then
        deleted = deleted + redis.call('del', key)
    end
end
return deleted
