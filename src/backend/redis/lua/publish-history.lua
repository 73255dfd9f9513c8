-- publish-history.lua: numbers, stores and announces publications to a room with history, in one
-- atomic step. The texts of batch.lua, stream.lua and publishing.lua come before this one.
--
--   KEYS  1 meta   2 stream   3 idempotency key, if there is one
--   ARGV  1, 2 incarnation and epochs (stream.lua)
--         3 channel   4 publications in the body; 0: one that is too large to announce   5 body
--         6 milliseconds to keep the idempotency key, a space, the fingerprint of the publication
--         7 the room's position for which the publication is meant, epoch:offset; '': any
--         for maintenance  8 publications to keep   9 milliseconds to keep them
--                          10 milliseconds to keep meta
--   reply  offset of the last publication, after the incarnation if it is not the caller's; of a
--          repeated key as in publishing.lua; incarnation, latest offset and 1 if the room is not
--          at the position
--
-- The stream has messages as they were announced. The id of an entry is the offset of its last
-- publication. The body is publications with their lengths in front. With the position before it,
-- it is a message (batch.js).

local stream, idempotencyKey = KEYS[2], KEYS[3]
local channel, added, body, keeping = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local expected, size, streamMs, metaMs = ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local keepMs, fingerprint
if idempotencyKey then
  keepMs, fingerprint = string.match(keeping, '^(%d+) (.*)$')
  local first = repeated(idempotencyKey, fingerprint)
  if first then return first end
end

local isLarge = added == '0'
if isLarge then added = '1' end
local count = tonumber(added)
local top, isKnown
if expected and expected ~= '' then
  -- Takes no offset, but is a write: Redis refuses it on a replica, whose position may be old.
  top, isKnown = advance('0', 0, 2)
  if not isAt(expected, top) then
    -- As read-history.lua does, so that the publisher finds the room at this position.
    if top == 0 then call('PEXPIRE', meta, 120000) end
    return { incarnation, top, 1 }
  end
  call('HINCRBY', meta, incarnation, added)
else
  top, isKnown = advance(added, count, 2)
end
local last = top + count
local position = positionHead(string.sub(incarnation, 33), top + 1)
local message = position .. body
local refused = idempotencyKey and keep(idempotencyKey, last, fingerprint, keepMs)
if not refused then
  refused = pcall('XADD', stream, string.format('%d', last), 'm', message)
  if type(refused) == 'table' and idempotencyKey then forget(idempotencyKey) end
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
if size then
  -- Trims whole nodes only: readers know the size. Redis 6.0 has no MINID, and keeps as many
  -- messages as the size allows: more than asked.
  local trimmed = pcall('XTRIM', stream, 'MINID', '~', math.max(0, last - size + 1))
  if type(trimmed) == 'table' then pcall('XTRIM', stream, 'MAXLEN', '~', size) end
  pcall('PEXPIRE', stream, streamMs)
  pcall('PEXPIRE', meta, metaMs)
elseif top == 0 or not isKnown then
  -- For a caller that passes no lifetime.
  pcall('PEXPIRE', stream, 86400000)
  pcall('PEXPIRE', meta, 86400000)
end
pcall('PUBLISH', channel, isLarge and position .. LARGE or message)
if isKnown then return last end
return { incarnation, last }
