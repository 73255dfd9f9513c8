-- events.lua: records events of one room that no other script decides: published messages.
--
-- KEYS     1 sequence   2 lane, or in a cluster outbox   3 state of the lane, or in a cluster sequence
-- ARGV     kind, fields, and shorter fields for a lane with a backlog, of each event
-- returns  the number of events in the room's outbox
local isLong = not IS_SHARDED and redis.call('XLEN', KEYS[2]) >= MAX_PAYLOADS
for i = 1, #ARGV, 3 do
  record(KEYS[1], KEYS[2], KEYS[3], ARGV[i], ARGV[isLong and i + 2 or i + 1])
end
return waiting(KEYS[2])
