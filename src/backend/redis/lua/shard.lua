-- shard.lua: the mark of a primary's data in a cluster: run_id:replication ID:ms of its beginning.
--
-- KEYS     1 the mark, in one of the primary's slots
-- returns  the mark: another one than before if the primary may have lost writes
--
-- A primary that restarts has another run_id. A replica that is promoted finds the mark of the
-- primary before it. A primary that was a replica meanwhile has another replication ID. Redis also
-- replaces the ID for the first replica, and after an hour without one. Then there is no second ID,
-- and nothing is lost.
local function read(section, name)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, name .. ':(%x+)') or 'none'
end
local run, id = read('server', 'run_id'), read('replication', 'master_replid')
local mark = redis.call('GET', KEYS[1])
if mark then
  local wasRun, wasId = string.match(mark, '^(%w+):(%w+):')
  local isSame = wasId == id or string.match(read('replication', 'master_replid2'), '^0*$')
  if wasRun == run and isSame then return mark end
end
local time = redis.call('TIME')
mark = string.format('%s:%s:%.0f', run, id, time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('SET', KEYS[1], mark)
return mark
