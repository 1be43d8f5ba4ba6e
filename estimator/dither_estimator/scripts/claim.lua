#!lua flags=allow-oom
-- Claim: from now on the archive of a partition is written under a name of its own. Whoever wrote before cannot commit
-- any more. allow-oom: a full store must be able to drain.
--
-- Where there is no archive yet, it begins after what is counted: up to there the stream is trimmed.
--
-- key                                    type    meaning
-- KEYS[1]  dither:{tag}:archived         string  'id number file claim': the last entry that the archive contains, number and
--                                                token of its last file ('0 -...' for none yet), who may write the next
-- KEYS[2]  dither:{tag}:checkpoint       string  id of the last stream entry that the cells contain
--
-- ARGV[1]  what KEYS[1] must hold; '' for not to be there     ARGV[2]  the new claim, never used before
--
-- Returns what KEYS[1] holds now; nil when it was something else and nothing was changed.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return nil
end
local before
if ARGV[1] == '' then
  local counted = string.match(redis.call('GET', KEYS[2]) or '0-0', '^[^.]+')
  before = counted .. ' 0 -' .. ARGV[2]
else
  before = string.match(ARGV[1], '^(%S+ %S+ %S+) %S+$')
end
local now = before .. ' ' .. ARGV[2]
redis.call('SET', KEYS[1], now)
return now
