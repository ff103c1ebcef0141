-- leave: cancelled, timed out, nobody waits here any more. Granted meanwhile, it is handed on;
-- otherwise the place in line is given up.
--   ARGV: owner, grant ms, horizon ms, channels
forget(ARGV[1])
local held = mine(ARGV[1])
if held ~= false then
    local first = head(tonumber(ARGV[3]))
    if first then
        hand_on(first, ARGV[2], ARGV[4])
    elseif held then
        free()
    end
end
return 1
