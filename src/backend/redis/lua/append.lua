-- append.lua: moves events of a room's outbox into their lane, in a cluster.
--
-- KEYS     1 lane   2 state of the lane   3 the last event of the room that was moved: epoch:number
-- ARGV     epoch, number and JSON of each event, in order
--
-- Several workers may move the same events at once, and one that was suspended may do so late. An
-- event that is not above the last one is in the lane already. A hole in the numbers is counted:
-- the outbox was too long.
local MOVED_MS = 3600000 -- longer than a worker may be suspended and keep its connection
local epoch, number = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+):(%d+)$')
epoch, number = tonumber(epoch) or 0, tonumber(number) or 0
for i = 1, #ARGV, 3 do
  local life, seq = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if life > epoch or (life == epoch and seq > number) then
    if life == epoch and seq > number + 1 then
      redis.call('HINCRBY', KEYS[2], 'lost', seq - number - 1)
    end
    append(KEYS[1], KEYS[2], ARGV[i + 2])
    epoch, number = life, seq
  end
end
redis.call('SET', KEYS[3], string.format('%.0f:%.0f', epoch, number), 'PX', MOVED_MS)
return 1
