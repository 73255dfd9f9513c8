-- mark.lua: is this the Redis that has written a mark (lease.lua)? Another script's text follows.
--
-- A mark is replication ID:time:run_id. A primary takes another replication ID, without a second
-- one, when it gets its first replica, and when it has had none for an hour. That is the same
-- Redis. Marks of v0.2.0 have no run_id.
local function read(section, name)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, name .. ':(%x+)') or 'none'
end
local function isOfThis(mark)
  if string.match(mark, '^%w+') == read('replication', 'master_replid') then return true end
  if string.match(mark, '^%w+:%d+:(%w+)$') ~= read('server', 'run_id') then return false end
  return string.match(read('replication', 'master_replid2'), '^0+$') ~= nil
end
