#!lua flags=allow-oom
-- Close: a window is open no longer, if every one of its published estimates is final.
--
-- KEYS[1]  dither:estimate:{m}:<v>:<w>    hash    field -> document; 'n|' .. field -> n, whether final (0 or 1), revision
-- KEYS[2]  dither:open:{m}                zset    version:window whose estimates are not final, by closing time
--
-- ARGV[1]  version:window
--
-- Returns 1 where it is closed now.

for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'n|' then
    local known = redis.call('HGET', KEYS[1], field)
    if not string.find(known, '^%d+ 1 ') then return 0 end
  end
end
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
