-- Deletes the locks that still belong to their owners: KEYS[i] if its value is ARGV[i]. One script,
-- because between a GET and a DEL a lock may expire and be acquired by another owner. Returns the
-- number of locks deleted.
local deleted = 0
for i, key in ipairs(KEYS) do
    if redis.call('get', key) == ARGV[i] then
        deleted = deleted + redis.call('del', key)
    end
end
return deleted
