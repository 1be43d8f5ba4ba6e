#!lua flags=allow-oom
-- Note: how far a look at the accounts of a partition came, and which of them are out of balance. allow-oom: a full store
-- must be watched, too; these keys do not grow with reports.
--
-- KEYS[1]  dither:{tag}:audit      hash   cursor, names, base, next, next_at: see dither_server.looking
-- KEYS[2]  dither:{tag}:suspects   set    metric:window of accounts that were out of balance
--
-- ARGV[1]  f, number of fields; then f pairs (field, text)
-- then     s, number of new suspects; then these; then those that are none any more

local fields = tonumber(ARGV[1])
for at = 2, 2 * fields, 2 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
end
local begin = 2 * fields + 3
local suspects = tonumber(ARGV[begin - 1])
for at = begin, begin + suspects - 1 do
  redis.call('SADD', KEYS[2], ARGV[at])
end
for at = begin + suspects, #ARGV do
  redis.call('SREM', KEYS[2], ARGV[at])
end
return 1
