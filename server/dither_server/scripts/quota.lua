#!lua
-- Take a part of a quota. What was taken is counted anew in each period of the store's clock.
--
-- No flag allow-oom: a store without free memory refuses the script before its first line.
--
-- KEYS                             type   meaning
--  1    dither:quota:{id}:<period> hash   period: its number since 1970; taken: reports taken in it. Forgotten after it
--
-- ARGV
--  1    length of the period, seconds
--  2    reports of the quota
--  3    fewer than so many are of no use
--  4    as many as are wished for, not fewer than that
--
-- Returns {number of the period; reports taken, 0 where fewer are left than are of use; reports left; milliseconds until
-- the period ends}.

local time = redis.call('TIME')
local length = tonumber(ARGV[1])
local period = math.floor(time[1] / length)
local ends_in = (period + 1) * length * 1000 - time[1] * 1000 - math.floor(time[2] / 1000)

local found = redis.call('HMGET', KEYS[1], 'period', 'taken')
local taken = 0
if found[1] == string.format('%d', period) then
    taken = tonumber(found[2])
end

local left = math.max(0, tonumber(ARGV[2]) - taken)
if left < tonumber(ARGV[3]) then
    return {period, 0, left, ends_in}
end
local part = math.min(left, tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], 'period', string.format('%d', period), 'taken', string.format('%d', taken + part))
redis.call('PEXPIRE', KEYS[1], ends_in + 1000)
return {period, part, left - part, ends_in}
