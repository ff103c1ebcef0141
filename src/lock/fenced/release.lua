-- release: hands the lock to the next in line, or leaves it free. A process with waiters of its own
-- gets in line again in the same breath, behind those who are there.
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, the owner to put in line or ''
-- Returns {'held' | 'expired' | 'lost', whose, fence}: how the lock stood, and who has it now with
-- which fence: 'again', the owner that was put in line; 'another's; or 'nobody', with '0'.
-- Repeated, it changes nothing more but when who was put in line was last seen. (Most of the time
-- handoff.lua has returned before this.)
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, again = ARGV[5], ARGV[6]

local already = again ~= '' and mine(again)
if already then
    -- Asked twice: the answer of the first time was lost.
    return {'held', 'again', fence_of(already)}
end
local held = mine(owner)
if not held then
    -- Its lease ran out, and it may have asked again since.
    forget(owner)
end
if held == false then
    if again ~= '' then
        stand_in_line(again)
        keep_line()
        tell(channels, owner_of(value) or '', 'waiting')
    end
    return {'lost', 'another', fence_of(value) or '0'}
end

local was, first = held and 'held' or 'expired', head(horizon)
if first and first ~= again then
    if again ~= '' then
        stand_in_line(again)
        keep_line()
    end
    return {was, 'another', hand_on(first, grant_ms, channels)}
elseif again ~= '' then
    forget(again)
    return {was, 'again', grant(again, ttl)}
elseif held then
    free()
end
return {was, 'nobody', '0'}
