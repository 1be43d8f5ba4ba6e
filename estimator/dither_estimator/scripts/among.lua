#!lua flags=no-writes
-- Which of some fields a hash has: a long history is not read for the few windows that are asked about.
--
-- KEYS[1]  dither:totals:{m}:<v>   hash   label -> packed counters of a closed window
--
-- ARGV     labels
--
-- Returns those that it has, in their order.

local found = {}
for _, label in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], label) == 1 then
    found[#found + 1] = label
  end
end
return found
