#!lua flags=allow-oom
-- Clean: forget that cells are unpublished, unless they changed again meanwhile.
--
-- KEYS[1]  dither:{tag}:dirty   hash   cell -> checkpoint of its last change
--
-- ARGV     pairs (cell, checkpoint that was published)
--
-- Returns the number of cells that are clean now.

local cleaned = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    cleaned = cleaned + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return cleaned
