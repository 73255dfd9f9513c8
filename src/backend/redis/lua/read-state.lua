-- read-state.lua: reads a room with state, in one atomic step. The texts of stream.lua, reading.lua
-- and state.lua come before this one.
--
--   KEYS  1 to 5 of state.lua
--   ARGV  1, 2 incarnation and epochs (stream.lua)
--         3 after   4 limit   5 bytes   6 '1': the caller does not follow the room
--         7 '1': check whether Redis was promoted meanwhile   8 epoch and 9 offset of `since`, or ''
--         then keys: only these
--   reply incarnation, latest offset, floor, 1 if the whole state, 1 if there are more entries,
--         then offset and publication of each entry, ascending unless keys are given

local after, limit, left = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local isGlance, mustCheck = ARGV[6] == '1', ARGV[7] == '1'
local sinceEpoch, since = ARGV[8], tonumber(ARGV[9])
local FIRST = 10

local top = whole(latest(isGlance, mustCheck, 5, sums), isGlance)
-- A write, as in read-history.lua: Redis refuses it on a replica.
call('PEXPIRE', meta, top == 0 and 120000 or math.max(1, call('PTTL', sums)))
local isWhole = 0
if sinceEpoch ~= '' then
  if sinceEpoch == string.sub(incarnation, 33) and since >= floor and since <= top then after = ARGV[9]
  else isWhole, after = 1, '0' end
end
local reply, count = { incarnation, top, floor, isWhole, 0 }, 0
if limit == 0 or top == 0 then return reply end
if ARGV[FIRST] then
  for i = FIRST, #ARGV do
    local score = call('ZSCORE', log, ARGV[i])
    if score then
      reply[#reply + 1] = tonumber(score)
      reply[#reply + 1] = call('HGET', values, ARGV[i])
    end
  end
  return reply
end
local chunk = 16
while true do
  local found = call('ZRANGEBYSCORE', log, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', '0', chunk)
  if #found == 0 then return reply end
  local names = {}
  for i = 1, #found, 2 do names[#names + 1] = found[i] end
  local publications = call('HMGET', values, unpack(names))
  for i, publication in ipairs(publications) do
    left = left - #publication
    if count == limit or (left < 0 and count > 0) then
      reply[5] = 1
      return reply
    end
    count = count + 1
    reply[#reply + 1] = tonumber(found[2 * i])
    reply[#reply + 1] = publication
  end
  if #names < chunk then return reply end
  after, chunk = found[#found], 256
end
