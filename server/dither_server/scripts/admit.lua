#!lua
-- Admit one batch: remember its id, append it to the stream, account for its reports. All or nothing.
--
-- No flag allow-oom: a store without free memory refuses the script before its first line.
-- What can fail stands before the first change: a key of another type makes the script fail with nothing changed.
-- The accounts stand last and under pcall: a damaged one shows as an imbalance, and never fails an upload.
--
-- KEYS                                      type     meaning
--  1    dither:{tag}:seen:<until>           set      ids of batches to be remembered until that date
--  2    dither:{tag}:stream                 stream   accepted batches in arrival order, field b
--  3    dither:{tag}:backlog                string   bytes of the entries in the stream
--  4    dither:{tag}:outcomes               set      every metric:window that has an outcome hash
--  5, 7..  dither:{tag}:outcome:<m>:<w>     hash     what became of the reports of a metric and window, by word
--  6, 8..  dither:{tag}:ever:<m>            hash     the same of that metric over all windows; nothing is forgotten
--  the last one, where there are refused reports of known versions:
--       dither:{tag}:refused             hash     how many were ever refused, by metric:version:reason
--
-- ARGV
--  1    id of the batch, 16 raw bytes
--  2    the stream entry; empty where every report was rejected
--  3    backlog from which a partition takes no more, bytes
--  4    when the set of ids may be forgotten, Unix time in seconds
--  5..  for each outcome key: number of reports, number of pairs, then the pairs (word, number of reports)
--  then for the last key: pairs (metric:version:reason, number of reports)
--
-- Returns 1 for a new batch, 0 for one that was admitted before, -1 where the partition is full.

local duplicate = redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1

if not duplicate then
    if tonumber(redis.call('GET', KEYS[3]) or '0') >= tonumber(ARGV[3]) then
        return -1
    end
    if #ARGV[2] > 0 then
        redis.call('XADD', KEYS[2], '*', 'b', ARGV[2])
        redis.pcall('INCRBY', KEYS[3], #ARGV[2])
    end
    redis.call('SADD', KEYS[1], ARGV[1])
    redis.call('EXPIREAT', KEYS[1], ARGV[4], 'NX')
end

local at = 5
for key = 5, #KEYS - 1, 2 do
    local ever = KEYS[key + 1]
    local pairs_end = at + 1 + 2 * tonumber(ARGV[at + 1])
    local received = redis.pcall('HINCRBY', KEYS[key], 'received', ARGV[at])
    if type(received) ~= 'number' or received == tonumber(ARGV[at]) then  -- a damaged one has to be found, too
        redis.pcall('SADD', KEYS[4], string.match(KEYS[key], ':outcome:(.*)$'))
    end
    redis.pcall('HINCRBY', ever, 'received', ARGV[at])
    if duplicate then
        redis.pcall('HINCRBY', KEYS[key], 'duplicate', ARGV[at])
        redis.pcall('HINCRBY', ever, 'duplicate', ARGV[at])
    else
        for pair = at + 2, pairs_end, 2 do
            redis.pcall('HINCRBY', KEYS[key], ARGV[pair], ARGV[pair + 1])
            redis.pcall('HINCRBY', ever, ARGV[pair], ARGV[pair + 1])
        end
    end
    at = pairs_end + 1
end
if not duplicate then
    for pair = at, #ARGV, 2 do
        redis.pcall('HINCRBY', KEYS[#KEYS], ARGV[pair], ARGV[pair + 1])
    end
end
return duplicate and 0 or 1
