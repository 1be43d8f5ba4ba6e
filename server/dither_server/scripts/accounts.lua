#!lua flags=no-writes
-- Accounts: one page of the index of accounts, without those of other metrics than the one asked for, and of windows
-- that are older than those asked for.
--
-- An index grows with every window that is kept, and of most of them nothing is asked: they are left out here, where it
-- costs least. What is no label of a known length is never left out.
--
-- KEYS[1]  dither:{tag}:outcomes   set   every metric:window that has an outcome hash
--
-- ARGV[1]  cursor, as SSCAN takes it    ARGV[2]  about how many names to look at
-- ARGV[3]  a pattern of the names that are asked for
-- then     pairs (length of a label, the smallest label of that length that is asked for): labels sort as their times
--
-- Returns {next cursor, names}.

local least = {}
for at = 4, #ARGV, 2 do
  least[tonumber(ARGV[at])] = ARGV[at + 1]
end

local page = redis.call('SSCAN', KEYS[1], ARGV[1], 'MATCH', ARGV[3], 'COUNT', ARGV[2])
local names = {}
for _, name in ipairs(page[2]) do
  local label = string.match(name, ':(.*)$') or ''
  if label >= (least[#label] or '') then
    names[#names + 1] = name
  end
end
return {page[1], names}
