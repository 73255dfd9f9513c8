-- lease.lua: takes, renews or releases a lane, and notices whether Redis has lost data.
--
-- KEYS     1 lease: the fence of the owner   2 state of the lane
-- ARGV     1 'acquire', 'renew' or 'release'   2 milliseconds of the lease
--          3 the fence; for acquire ''         4 the mark of the lane as the caller knows it, or ''
-- returns  the fence and the mark; the fence is 0 if another process owns the lane
--
-- A fence is a time or later than the last one, so a fence that Redis has lost is not used again.
-- The mark names the Redis that has the lane. If another one has it, or if it has lost the mark
-- that the caller knows, events may be missing: one is counted as lost, and the courier announces a
-- gap.
local lease, state = KEYS[1], KEYS[2]
local owner = redis.call('GET', lease)
if ARGV[1] == 'release' then
  if owner == ARGV[3] then redis.call('DEL', lease) end
  return { 0, ARGV[4] }
end
if ARGV[1] == 'renew' and owner ~= ARGV[3] then return { 0, ARGV[4] } end
if ARGV[1] == 'acquire' and owner then return { 0, ARGV[4] } end

local replication = redis.pcall('INFO', 'replication')
local mark = type(replication) == 'string' and string.match(replication, 'master_replid:(%x+)') or 'none'
local was = redis.call('HMGET', state, 'mark', 'fence')
if was[1] ~= mark then
  redis.call('HSET', state, 'mark', mark)
  if was[1] or ARGV[4] ~= '' then redis.call('HINCRBY', state, 'lost', 1) end
end
local fence = ARGV[3]
if ARGV[1] == 'acquire' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  fence = string.format('%.0f', math.max(now, (tonumber(was[2]) or 0) + 1))
  redis.call('HSET', state, 'fence', fence)
end
redis.call('SET', lease, fence, 'PX', ARGV[2])
return { tonumber(fence), mark }
