-- leave: cancelled, timed out, nobody waits here any more. Granted meanwhile, it is handed on;
-- otherwise the place in line is given up.
--   ARGV: owner, grant ms, horizon ms, channels
forget(ARGV[1])
local held = mine(ARGV[1])
if held then
    redis.call('del', KEYS[1])
end
if held ~= false then
    hand_on(ARGV[2], tonumber(ARGV[3]), ARGV[4])
end
return 1
