-- Deletes a lock if it is still its owner's. In one script, because between a GET and a DEL the
-- lock may expire and become somebody else's.
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
