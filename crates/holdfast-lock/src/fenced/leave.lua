-- leave: removes an id whose callers no longer wait. If it was granted the lock already, the lock
-- goes to the next waiter, or is freed. A lock that is free goes to the next waiter too.
--   ARGV: id, grant ms, waiter timeout ms, channels, 'sharded' or 'plain'
dequeue(ARGV[1])
local held = value_if_held_by(ARGV[1])
if held ~= false then
    local first = first_live_waiter(tonumber(ARGV[3]))
    if first then
        grant_to_waiter(first, ARGV[2], ARGV[4])
    elseif held then
        free_lock()
    end
end
return 1
