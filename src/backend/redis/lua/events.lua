-- events.lua: records events of one room that no other script decides: published messages, and what
-- doors report.
--
-- KEYS     1 sequence   2 lane, or in a cluster outbox   3 state of the lane, or in a cluster sequence
-- ARGV     kind, mark, fields, and shorter fields for a lane with a backlog, of each event. If the
--          room has the same mark, the event is not recorded; '': it is
-- returns  the number of events in the room's outbox
local isLong = not IS_SHARDED and redis.call('XLEN', KEYS[2]) >= MAX_PAYLOADS
for i = 1, #ARGV, 4 do
  local mark = ARGV[i + 1]
  if mark == '' or redis.call('HGET', KEYS[1], 'mark') ~= mark then
    record(KEYS[1], KEYS[2], KEYS[3], ARGV[i], ARGV[isLong and i + 3 or i + 2])
    if mark ~= '' then redis.call('HSET', KEYS[1], 'mark', mark) end
  end
end
return waiting(KEYS[2])
