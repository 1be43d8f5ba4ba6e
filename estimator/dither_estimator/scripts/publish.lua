#!lua
-- Publish: an estimate replaces the published one unless that is based on more reports already, so that of two
-- publishers the one who read later wins, whoever writes last.
--
-- No flag allow-oom: a store without free memory refuses the script before its first line. The cell stays marked as
-- unpublished, and counting goes on.
--
-- KEYS[1]  dither:estimate:<metric>:<version>   hash   field -> estimate as JSON; 'n|' .. field -> its n
--
-- ARGV[1]  field      ARGV[2]  n      ARGV[3]  the estimate as JSON
--
-- Returns 1 when written, 0 when a later one stands. n stays below 2^53, so Lua's numbers are exact.

local published = redis.call('HGET', KEYS[1], 'n|' .. ARGV[1])
if published and tonumber(published) > tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], 'n|' .. ARGV[1], ARGV[2])
return 1
