#!lua flags=allow-oom
-- Forget: everything that is published about one window of a metric, of every version. allow-oom: it frees memory.
--
-- key                                            type    meaning
-- KEYS[1]  dither:published:{m}                  zset    version:window by the window's start
-- KEYS[2]  dither:open:{m}                       zset    version:window whose estimates are not final
-- KEYS[3 .. 2+e]  dither:estimate:{m}:<v>:<w>    hash    estimates by dimensions, with a companion 'n|...' each
-- KEYS[3+e ..]    dither:totals:{m}:<v>          hash    label -> counters of a closed window
--                 dither:rollup:{m}:<v>:<k>      hash    label of the last window -> estimate, with its companion
--
-- ARGV[1]  e, number of hashes that go altogether   ARGV[2]  label of the window
-- then     its members of the sorted sets
--
-- Returns the number of estimates that were there.

local estimates = 0
local last = 2 + tonumber(ARGV[1])
for key = 3, last do
  for _, field in ipairs(redis.call('HKEYS', KEYS[key])) do
    if string.sub(field, 1, 2) ~= 'n|' then estimates = estimates + 1 end
  end
  redis.call('UNLINK', KEYS[key])
end
for key = last + 1, #KEYS do
  local there = redis.call('HDEL', KEYS[key], ARGV[2])
  redis.call('HDEL', KEYS[key], 'n|' .. ARGV[2])
  if string.find(KEYS[key], '^dither:rollup:') then estimates = estimates + there end
end
for member = 3, #ARGV do
  redis.call('ZREM', KEYS[1], ARGV[member])
  redis.call('ZREM', KEYS[2], ARGV[member])
end
return estimates
