-- history.lua: publishes to a room with history, or reads it, in one atomic step.
--
--   KEYS  1 meta   2 stream   3 idempotency key, if there is one
--   ARGV  1 the room's incarnation as the caller knows it, or only its fence, or ''
--           'trust': an epoch outlives the server
--           a fence and the one before it: the caller has watched the change, and nothing was lost
--           (identity.js)
--         2 a new epoch, random and used once, in case one must begin; then ended epochs that the
--           caller knows
--         3 channel   4 publications in the body; 0: one that is too large to announce   5 body
--         6 milliseconds to keep the idempotency key, a space, the fingerprint of the publication
--         for maintenance  7 publications to keep   8 milliseconds to keep them
--                          9 milliseconds to keep meta
--     or  3 ''   4 after   5 limit   6 bytes   7 milliseconds to keep meta
--         8 '1': the oldest publications above `after`, not the newest
--         9 '1': the caller does not follow the room; without meta the room gets none
--         10 '1': check whether Redis was promoted meanwhile
--         11 an epoch and an offset: the publications below it, none if the epoch is not current
--         12 publications to keep: trimming leaves more
--   reply  offset of the last publication, after the incarnation if it is not the caller's;
--          epoch and offset of a repeated key; '' and 0 if it has another fingerprint, '' and 1 if
--          another version of Fanfare wrote its value
--     or   incarnation, latest offset, messages, newest first, 1 if older ones above `after` are
--          kept; oldest first if 8 is '1'
--
-- The incarnation and meta: stream.lua. The functions of the framing: batch.lua. The texts of both
-- come before this one.
--
-- The value of an idempotency key is epoch:offset:fingerprint. events.lua and later versions may
-- append fields, each after a colon. A value of another form is of another version; it should begin
-- with '@'.
--
-- The stream has messages as they were announced. The id of an entry is the offset of its last
-- publication. The body is publications with their lengths in front. With the position before it,
-- it is a message (batch.js).

local stream = KEYS[2]
local isRead, isLarge, count = ARGV[3] == '', ARGV[4] == '0', tonumber(ARGV[4])
if isLarge and not isRead then count = 1 end

local keepMs, fingerprint
if KEYS[3] then
  keepMs, fingerprint = string.match(ARGV[6], '^(%d+) (.*)$')
  local was = call('GET', KEYS[3])
  if was then
    local epoch, offset, first = string.match(was, '^(%x+):(%d+):?([^:]*)')
    if not epoch then return { '', 1 } end
    if fingerprint ~= '' and first ~= '' and first ~= fingerprint then return { '', 0 } end
    return { epoch, tonumber(offset) }
  end
end

local top, isKnown = locate(isRead, isLarge and '1' or ARGV[4], count, ARGV[9] == '1', ARGV[10] == '1', 2)

if isRead then
  -- PEXPIRE is a write, so Redis refuses it on a replica, or on a primary without its replicas,
  -- which may lack the latest publications. Clients may ask for any room, so a room without
  -- publications is remembered for two minutes only. Workers that follow it call this script once a
  -- minute.
  call('PEXPIRE', meta, top == 0 and 120000 or ARGV[7])
  local bytes, messages, expected, chunk = tonumber(ARGV[6]), {}, top, 8
  if ARGV[8] == '1' then
    local wanted, last = count + 1, math.min(top, count + ARGV[5])
    while wanted <= last do
      chunk = math.min(chunk, last - wanted + 1)
      local entries = call('XRANGE', stream, wanted, '+', 'COUNT', chunk)
      local largest = 1
      for _, entry in ipairs(entries) do
        local message = entry[2][2]
        bytes = bytes - #message
        -- The first message may be later than wanted, because earlier ones are no longer kept.
        -- Behind the first there is no gap.
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
  count = math.max(count, top - ARGV[12])
  if ARGV[11] ~= '' then
    if string.sub(ARGV[11], 1, 16) ~= string.sub(incarnation, 33) then return { incarnation, top, messages, 0 } end
    last = math.min(top, string.sub(ARGV[11], 17) - 1)
    -- The entry that has the publication may go on after it.
    local entry = last > count and call('XRANGE', stream, last, '+', 'COUNT', 1)[1]
    if not entry or firstOffset(entry[2][2]) > last then return { incarnation, top, messages, 0 } end
    expected = tonumber(string.match(entry[1], '^%d+'))
  end
  local lowest = math.max(count, last - ARGV[5])
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
  if #messages > 0 and lowest > count and expected <= lowest then
    hasOlder = expected < lowest and 1 or #call('XRANGE', stream, expected, expected)
  end
  return { incarnation, top, messages, hasOlder }
end

local last = top + count
local position = positionHead(string.sub(incarnation, 33), top + 1)
local message = position .. ARGV[5]
local refused = KEYS[3] and keep(KEYS[3], last, fingerprint, keepMs)
if not refused then
  refused = pcall('XADD', stream, string.format('%d', last), 'm', message)
  if type(refused) == 'table' and KEYS[3] then forget(KEYS[3]) end
end
if type(refused) == 'table' then
  -- The next publication gets its offset. An unused offset would be a gap, and clients would
  -- reload.
  pcall('HINCRBY', meta, incarnation, -count)
  return refused
end
-- The publication is stored, so it is accepted. Redis may still refuse the rest (an ACL user
-- without the rights). The script must not report a failure then, because readers find the
-- publication in the stream.
if ARGV[7] then
  -- Trims whole nodes only: readers know the size. Redis 6.0 has no MINID, and keeps as many
  -- messages as the size allows: more than asked.
  local trimmed = pcall('XTRIM', stream, 'MINID', '~', math.max(0, last - ARGV[7] + 1))
  if type(trimmed) == 'table' then pcall('XTRIM', stream, 'MAXLEN', '~', ARGV[7]) end
  pcall('PEXPIRE', stream, ARGV[8])
  pcall('PEXPIRE', meta, ARGV[9])
elseif top == 0 or not isKnown then
  -- For a caller that passes no lifetime.
  pcall('PEXPIRE', stream, 86400000)
  pcall('PEXPIRE', meta, 86400000)
end
pcall('PUBLISH', ARGV[3], isLarge and position .. LARGE or message)
if isKnown then return last end
return { incarnation, last }
