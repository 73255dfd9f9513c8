-- read-history.lua: reads a room with history, in one atomic step. The texts of batch.lua,
-- stream.lua and reading.lua come before this one.
--
--   KEYS  1 meta   2 stream
--   ARGV  1, 2 incarnation and epochs (stream.lua)
--         3 after   4 limit   5 bytes   6 milliseconds to keep meta
--         7 '1': the oldest publications above `after`, not the newest
--         8 '1': the caller does not follow the room; without meta the room gets none
--         9 '1': check whether Redis was promoted meanwhile
--         10 an epoch and an offset: the publications below it, none if the epoch is not current
--         11 publications to keep: trimming leaves more
--   reply  incarnation, latest offset, messages, newest first, 1 if older ones above `after` are
--          kept; oldest first if 7 is '1'

local stream = KEYS[2]
local after, limit, bytes, metaMs = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local isForward, isGlance, mustCheck = ARGV[7] == '1', ARGV[8] == '1', ARGV[9] == '1'
local before, size = ARGV[10], ARGV[11]

local top = latest(isGlance, mustCheck, 2)
-- PEXPIRE is a write, so Redis refuses it on a replica, or on a primary without its replicas,
-- which may lack the latest publications. Clients may ask for any room, so a room without
-- publications is remembered for two minutes only. Workers that follow it call this script once a
-- minute.
call('PEXPIRE', meta, top == 0 and 120000 or metaMs)
local messages, expected, chunk = {}, top, 8
if isForward then
  local wanted, last = after + 1, math.min(top, after + limit)
  while wanted <= last do
    chunk = math.min(chunk, last - wanted + 1)
    local entries = call('XRANGE', stream, wanted, '+', 'COUNT', chunk)
    local largest = 1
    for _, entry in ipairs(entries) do
      local message = entry[2][2]
      bytes = bytes - #message
      -- The first message may be later than wanted, because earlier ones are no longer kept.
      -- After the first there is no gap.
      local isBehindGap = #messages > 0 and firstOffset(message) ~= wanted
      if (bytes < 0 and #messages > 0) or isBehindGap then return { incarnation, top, messages } end
      messages[#messages + 1] = message
      largest = math.max(largest, #message)
      wanted = tonumber(string.match(entry[1], '^%d+')) + 1
      if wanted > last then break end
    end
    if #entries < chunk then break end
    chunk = math.max(1, math.min(64, math.floor(bytes / largest)))
  end
  return { incarnation, top, messages }
end
local last, hasOlder = top, 0
after = math.max(after, top - size)
if before ~= '' then
  if string.sub(before, 1, 16) ~= string.sub(incarnation, 33) then return { incarnation, top, messages, 0 } end
  last = math.min(top, string.sub(before, 17) - 1)
  -- The entry that has the publication may go on after it.
  local entry = last > after and call('XRANGE', stream, last, '+', 'COUNT', 1)[1]
  if not entry or firstOffset(entry[2][2]) > last then return { incarnation, top, messages, 0 } end
  expected = tonumber(string.match(entry[1], '^%d+'))
end
local lowest = math.max(after, last - limit)
while expected > lowest do
  chunk = math.min(chunk, expected - lowest)
  local entries = call('XREVRANGE', stream, expected, '-', 'COUNT', chunk)
  local largest = 1
  for _, entry in ipairs(entries) do
    local message = entry[2][2]
    bytes = bytes - #message
    -- Returns at least one message, but none after a gap: another program has changed the
    -- stream.
    local isBehindGap = tonumber(string.match(entry[1], '^%d+')) ~= expected
    if (bytes < 0 and #messages > 0) or isBehindGap then
      return { incarnation, top, messages, isBehindGap and 0 or 1 }
    end
    messages[#messages + 1] = message
    largest = math.max(largest, #message)
    expected = firstOffset(message) - 1
    if expected <= lowest then break end
  end
  if #entries < chunk then break end
  -- More at a time if messages are small, but few more than the bytes that may be sent.
  chunk = math.max(1, math.min(64, math.floor(bytes / largest)))
end
if #messages > 0 and lowest > after and expected <= lowest then
  hasOlder = expected < lowest and 1 or #call('XRANGE', stream, expected, expected)
end
return { incarnation, top, messages, hasOlder }
