#!lua
-- Admit one batch: remember its id, account for its reports, append it to the stream. All or nothing.
--
-- No flag allow-oom: a store without free memory refuses the script before its first line.
--
-- KEYS                                      type     meaning
--  1    dither:{tag}:seen:<until>           set      ids of batches to be remembered until that date
--  2    dither:{tag}:stream                 stream   accepted batches in arrival order, field b
--  3    dither:{tag}:backlog                string   bytes of the entries in the stream
--  4..  dither:{tag}:outcome:<m>:<window>   hash     what became of the reports, by word
--
-- ARGV
--  1    id of the batch, 16 raw bytes
--  2    the stream entry; empty where every report was rejected
--  3    backlog from which a partition takes no more, bytes
--  4    when the set of ids may be forgotten, Unix time in seconds
--  5..  for each outcome key: number of reports, number of pairs, then the pairs (word, number of reports)
--
-- Returns 1 for a new batch, 0 for one that was admitted before, -1 where the partition is full.

if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then
    local at = 5
    for key = 4, #KEYS do
        redis.call('HINCRBY', KEYS[key], 'received', ARGV[at])
        redis.call('HINCRBY', KEYS[key], 'duplicate', ARGV[at])
        at = at + 2 + 2 * tonumber(ARGV[at + 1])
    end
    return 0
end

if tonumber(redis.call('GET', KEYS[3]) or '0') >= tonumber(ARGV[3]) then
    return -1
end

redis.call('SADD', KEYS[1], ARGV[1])
redis.call('EXPIREAT', KEYS[1], ARGV[4], 'NX')
local at = 5
for key = 4, #KEYS do
    redis.call('HINCRBY', KEYS[key], 'received', ARGV[at])
    local pairs_end = at + 1 + 2 * tonumber(ARGV[at + 1])
    for pair = at + 2, pairs_end, 2 do
        redis.call('HINCRBY', KEYS[key], ARGV[pair], ARGV[pair + 1])
    end
    at = pairs_end + 1
end
if #ARGV[2] > 0 then
    redis.call('XADD', KEYS[2], '*', 'b', ARGV[2])
    redis.call('INCRBY', KEYS[3], #ARGV[2])
end
return 1
