-- Sets the expiry of the locks that still belong to their owners to ARGV[1] milliseconds: KEYS[i]
-- if its value is ARGV[i + 1]. Returns the number of locks renewed.
local renewed = 0
for i, key in ipairs(KEYS) do
    if redis.call('get', key) == ARGV[i + 1] then
        renewed = renewed + redis.call('pexpire', key, ARGV[1])
    end
end
return renewed
