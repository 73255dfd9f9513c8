-- events.lua: records events of one room that no other script decides: published messages, and what
-- doors report.
--
-- KEYS     1 sequence   2 partition; in a cluster: outbox   3 state of the partition; in a cluster: sequence
--          then idempotency keys
-- ARGV     kind, mark, fields of each event, and which key is its idempotency key; '': none. If the
--          room has the same mark, the event is not recorded; '': it is
-- returns  the number of events in the room's outbox
--
-- A message with an idempotency key may be a repeated one. When its event is recorded, the value of
-- the key gets the field `e` (once.lua, publishing.lua), so it is recorded once. If Redis has lost
-- the key, or it is of another version, it is recorded. If Redis refuses to keep the field, nothing
-- is recorded, and the caller counts the events as lost: a repetition would be recorded as another.
local RECORDED = ':e'

-- Returns whether the event is recorded, and the refusal.
local function isRecorded(key)
  local was = redis.call('GET', key)
  if not was or string.sub(was, 1, 1) == '@' then return false end
  if string.find(was .. ':', RECORDED .. ':', 1, true) then return true end
  local answer = redis.pcall('SET', key, was .. RECORDED, 'PX', math.max(1, redis.call('PTTL', key)))
  return false, answer.err and answer
end

local recorded = {}
for i = 1, #ARGV, 4 do
  local key, refused = KEYS[tonumber(ARGV[i + 3])], nil
  if key then recorded[i], refused = isRecorded(key) end
  if refused then return refused end
end
for i = 1, #ARGV, 4 do
  local mark = ARGV[i + 1]
  local isNew = mark == '' or redis.call('HGET', KEYS[1], 'mark') ~= mark
  if isNew and not recorded[i] then
    record(KEYS[1], KEYS[2], KEYS[3], ARGV[i], ARGV[i + 2])
    if mark ~= '' then redis.call('HSET', KEYS[1], 'mark', mark) end
  end
end
return waiting(KEYS[2])
