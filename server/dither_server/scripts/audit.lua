#!lua flags=no-writes
-- Audit: one slice of the accounts of a partition, and of these the ones that are not closed: reports are waiting, the
-- numbers do not add up, or something is no number. They are judged outside, beside what is in flight at this moment.
--
-- A number of fifteen digits or more is not compared here, where numbers are doubles.
--
-- KEYS[1]  dither:{tag}:outcomes           set    every metric:window that has an outcome hash
--          dither:{tag}:outcome:<m>:<w>    hash   those of its members, in the same slot; named by the set alone
--
-- ARGV[1]  cursor, as SSCAN takes it    ARGV[2]  about how many accounts    ARGV[3]  how keys of accounts begin
--
-- Returns {next cursor, metrics of the slice, members that are not closed, the store's time in Unix seconds}.

-- By word, how a number enters into what is waiting, and into what was refused without a reason: both are 0 at rest.
local waits = {received = 0, accepted = 1, counted = -1, dead = -1, duplicate = 0}
local refuses = {received = 1, accepted = -1, counted = 0, dead = 0, duplicate = -1}
local call, pcall, match, find = redis.call, redis.pcall, string.match, string.find

local function closed(fields)
  if fields.err then return false end
  local waiting, refused = 0, 0
  for at = 1, #fields, 2 do
    local word, text = fields[at], fields[at + 1]
    if #text > 14 or find(text, '^-?%d+$') == nil then return false end
    local wait = waits[word]
    if wait then
      waiting = waiting + wait * text
      refused = refused + refuses[word] * text
    elseif find(word, 'rejected:', 1, true) == 1 then
      refused = refused - text
    else
      return false
    end
  end
  return waiting == 0 and refused == 0
end

local page = call('SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local metrics, seen, open = {}, {}, {}
for _, name in ipairs(page[2]) do
  local metric = match(name, '^[^:]*')
  if not seen[metric] then
    seen[metric] = true
    metrics[#metrics + 1] = metric
  end
  if not closed(pcall('HGETALL', ARGV[3] .. name)) then
    open[#open + 1] = name
  end
end
return {page[1], metrics, open, tonumber(call('TIME')[1])}
