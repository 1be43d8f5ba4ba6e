#!lua flags=no-writes
-- Entries of a partition after its checkpoint, oldest first. In three texts, since a reply of many small parts costs the
-- reader more than everything else that it does with an entry.
--
-- KEYS[1]  dither:{tag}:stream   stream   accepted batches, in arrival order, field b
--
-- ARGV[1]  first id to read, '-' for the beginning   ARGV[2]  most entries
-- ARGV[3]  most bytes of payloads; the entry that goes beyond is the last one
--
-- Returns the ids and the sizes of the payloads, each with spaces between them, and the payloads one after the other.

local AT_ONCE = 16  -- a payload may have a few MiB

local ids, sizes, payloads, found = {}, {}, {}, 0
local start, left, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
while left > 0 and bytes >= 0 do
  local most = math.min(left, AT_ONCE)
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', most)
  for _, entry in ipairs(page) do
    local fields, payload = entry[2], ''
    for at = 1, #fields, 2 do
      if fields[at] == 'b' then payload = fields[at + 1] end
    end
    found = found + 1
    ids[found], sizes[found], payloads[found] = entry[1], #payload, payload
    bytes = bytes - #payload
    if bytes < 0 then break end
  end
  if #page < most then break end
  start, left = '(' .. ids[found], left - most
end
return {table.concat(ids, ' '), table.concat(sizes, ' '), table.concat(payloads)}
