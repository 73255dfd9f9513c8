-- append.lua: moves events of a room's outbox into their partition, in a cluster.
--
-- KEYS     1 partition   2 state of the partition
--          3 the last event of the room that was moved: epoch:number
-- ARGV     epoch, number and JSON of each event, in order
--
-- Several workers may move the same events at once, and one that was suspended may do so late. An
-- event that is not above the last one is in the partition already. A hole in the numbers is
-- counted: the outbox was too long.
--
-- An epoch is a time of the room's primary. So a lower one is that of a worker that was suspended
-- for long, or that of a primary that has forgotten the last epoch, and whose clock is behind. The
-- event goes into the partition, and counts as a loss: the endpoint reads the state again.
local MOVED_MS = 3600000 -- longer than a worker may be suspended and keep its connection
local epoch, number = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+):(%d+)$')
epoch, number = tonumber(epoch) or 0, tonumber(number) or 0
for i = 1, #ARGV, 3 do
  local life, seq = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if life ~= epoch or seq > number then
    local lost = life == epoch and seq - number - 1 or (life < epoch and 1 or 0)
    if lost > 0 then redis.call('HINCRBY', KEYS[2], 'lost', lost) end
    append(KEYS[1], KEYS[2], ARGV[i + 2])
    epoch, number = life, seq
  end
end
redis.call('SET', KEYS[3], string.format('%.0f:%.0f', epoch, number), 'PX', MOVED_MS)
return 1
