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
-- The mark names the data of the partition: replication ID:time:run_id. If the caller knows another
-- one, or if another Redis has written it, events may be missing: one is counted as lost, and the
-- courier announces a gap. Couriers that wait for the partition know the mark, too: the owner may
-- have died. A primary takes another replication ID, without a second one, when it gets its first
-- replica, and when it has had none for an hour. That is no loss. Marks of v0.2.0 have no run_id.
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
local function read(section, name)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, name .. ':(%x+)') or 'none'
end
local id, mark = read('replication', 'master_replid'), was[1]
if not mark or string.match(mark, '^%w+') ~= id then
  local run = read('server', 'run_id')
  local isSame = mark and string.match(mark, '^%w+:%d+:(%w+)$') == run
  if not isSame or not string.match(read('replication', 'master_replid2'), '^0+$') then
    mark = string.format('%s:%.0f:%s', id, now, run)
    redis.call('HSET', state, 'mark', mark)
  end
end
if (was[1] and was[1] ~= mark) or (known ~= '' and known ~= mark) then
  redis.call('HINCRBY', state, 'lost', 1)
elseif not was[1] and ARGV[5] == 'first' then
  redis.call('HSET', state, 'unknown', 1)
elseif not was[1] and now - (tonumber(ARGV[5]) or now) > START_MS then
  redis.call('HINCRBY', state, 'lost', 1)
end
local fence = ARGV[3]
if ARGV[1] == 'acquire' then
  fence = string.format('%.0f', math.max(now, (tonumber(was[2]) or 0) + 1))
  redis.call('HSET', state, 'fence', fence)
end
redis.call('SET', lease, fence, 'PX', ARGV[2])
return { tonumber(fence), mark }
