-- events.lua: records events of one room that no other script decides: published messages, and what
-- doors report.
--
-- KEYS     1 sequence   2 lane, or in a cluster outbox   3 state of the lane, or in a cluster sequence
-- ARGV     kind, mark and fields of each event. If the room has the same mark, the event is not
--          recorded; '': it is
-- returns  the number of events in the room's outbox
for i = 1, #ARGV, 3 do
  local mark = ARGV[i + 1]
  if mark == '' or redis.call('HGET', KEYS[1], 'mark') ~= mark then
    record(KEYS[1], KEYS[2], KEYS[3], ARGV[i], ARGV[i + 2])
    if mark ~= '' then redis.call('HSET', KEYS[1], 'mark', mark) end
  end
end
return waiting(KEYS[2])
