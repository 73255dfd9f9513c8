-- lease.lua: takes, renews or releases a partition, and notices whether Redis has lost data.
--
-- KEYS     1 lease: the fence of the owner   2 state of the partition
-- ARGV     1 'acquire', 'renew' or 'release'   2 milliseconds of the lease
--          3 the fence; for acquire ''
--          4 the mark of the partition as the caller knows it, or ''
--          5 'first' for the first partition; for others ms of the first one's mark, or ''
-- returns  the fence and the mark; the fence is 0 if another process owns the partition
--
-- A fence is a time or later than the last one, so a fence that Redis has lost is not used again.
-- The mark names the data of the partition (mark.lua). If the caller knows another one, or if
-- another Redis has written it, events may be missing: one is counted as lost, and the courier
-- announces a gap. Couriers that wait for the partition know the mark, too, as the owner may have
-- died.
--
-- The owner then loses the partition, and takes it anew, because its memory has events of the lost
-- data. If Redis has gone back, nothing that is recorded later may correct them.
--
-- A partition without a mark that nobody knows is new, or all who knew it have ended with it. If
-- the first partition has long had a mark, this partition has lost its data. If the first partition
-- has none either, nobody can tell a new Redis from one that has lost everything. Then the field
-- `unknown` of the first partition makes the courier announce a gap without a number of events.
local START_MS = 60000 -- in which the couriers of a new fleet take all partitions
local lease, state = KEYS[1], KEYS[2]
local owner = redis.call('GET', lease)
local known = ARGV[4]
if ARGV[1] == 'release' then
  if owner == ARGV[3] then redis.call('DEL', lease) end
  return { 0, known }
end
if ARGV[1] == 'renew' and owner ~= ARGV[3] then return { 0, known } end

local was = redis.call('HMGET', state, 'mark', 'fence', 'lost')
if ARGV[1] == 'acquire' and owner then
  -- The owner has begun after the loss, and could not notice it.
  if was[1] and known ~= '' and known ~= was[1] and not was[3] then
    redis.call('HINCRBY', state, 'lost', 1)
  end
  return { 0, was[1] or known }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark = was[1]
if not mark or not isOfThis(mark) then
  mark = string.format('%s:%.0f:%s', read('replication', 'master_replid'), now, read('server', 'run_id'))
  redis.call('HSET', state, 'mark', mark)
end
local isOther = (was[1] and was[1] ~= mark) or (known ~= '' and known ~= mark)
if isOther then
  redis.call('HINCRBY', state, 'lost', 1)
elseif not was[1] and ARGV[5] == 'first' then
  redis.call('HSET', state, 'unknown', 1)
elseif not was[1] and now - (tonumber(ARGV[5]) or now) > START_MS then
  redis.call('HINCRBY', state, 'lost', 1)
end
if isOther and ARGV[1] == 'renew' then
  redis.call('DEL', lease)
  return { 0, mark }
end
local fence = ARGV[3]
if ARGV[1] == 'acquire' then
  fence = string.format('%.0f', math.max(now, (tonumber(was[2]) or 0) + 1))
  redis.call('HSET', state, 'fence', fence)
end
redis.call('SET', lease, fence, 'PX', ARGV[2])
return { tonumber(fence), mark }
