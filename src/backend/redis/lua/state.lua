-- state.lua: publishes to a room with state, or reads it, in one atomic step.
--
--   KEYS  1 meta   2 values: key -> publication   3 log: key -> offset
--         4 removed: key -> offset of its tombstone   5 sums: bytes, gone, floor
--         6 idempotency key, if there is one
--   ARGV  1, 2 as in history.lua
--         3 channel   4 number of publications   5 milliseconds to keep the idempotency key, a space,
--         the fingerprint of the publication   6 most keys   7 most bytes   8 milliseconds to keep the
--         state   then for each publication: key, publication, '1' if it removes the key
--     or  3 ''   4 after   5 limit   6 bytes   7 '1': the caller does not follow the room
--         8 '1': check whether Redis was promoted meanwhile   9 epoch and 10 offset of `since`, or ''
--         then keys: only these
--   reply incarnation, offset of the last accepted publication, and for each '1' if it was
--         accepted, else '0'; of a repeated key as in history.lua
--     or  incarnation, latest offset, floor, 1 if the whole state, 1 if there are more entries,
--         then offset and publication of each entry, ascending unless keys are given
--
-- The log has of each key the newest offset, those of removed keys included. A removed key is a
-- tombstone: its publication stays, with the payload null. There are at most as many tombstones as
-- keys; `floor` is the highest offset of one that is forgotten. Bytes are those of live keys and
-- their publications, `gone` those of tombstones (protocol/compacted-log.js).
--
-- All keys expire together. If meta is older than the rest, it counts as nothing: the epoch ends.
-- It also ends if a Redis that evicts keys has taken one of them: what is left is no state. Without
-- tombstones there is no key 4, and `gone` is 0.

local values, log, removed, sums = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local isRead = ARGV[3] == ''

local keepMs, fingerprint
if KEYS[6] then
  keepMs, fingerprint = string.match(ARGV[5], '^(%d+) (.*)$')
  local was = call('GET', KEYS[6])
  if was then
    local epoch, offset, first = string.match(was, '^(%x+):(%d+):?([^:]*)')
    if not epoch then return { '', 1, '' } end
    if fingerprint ~= '' and first ~= '' and first ~= fingerprint then return { '', 0, '' } end
    return { epoch, tonumber(offset), '' }
  end
end

local isGlance = isRead and ARGV[7] == '1'
local top = locate(isRead, '0', 0, isGlance, ARGV[8] == '1', 5, sums)
local was = call('HMGET', sums, 'bytes', 'gone', 'floor')
local bytes, gone, floor = tonumber(was[1] or 0), tonumber(was[2] or 0), tonumber(was[3] or 0)
if top > 0 and (not was[1] or call('EXISTS', values, log, gone > 0 and removed or log) < 3) then
  local former = incarnation
  incarnation, top = string.sub(former, 1, 32) .. string.sub(ARGV[2], 1, 16), 0
  bytes, gone, floor = 0, 0, 0
  if not isGlance then
    call('HSET', meta, incarnation, 1)
    call('HDEL', meta, former)
    call('UNLINK', values, log, removed, sums)
  end
end

if isRead then
  -- A write, as in history.lua: Redis refuses it on a replica.
  call('PEXPIRE', meta, top == 0 and 120000 or math.max(1, call('PTTL', sums)))
  local after, limit, left = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
  local isWhole = 0
  if ARGV[9] ~= '' then
    local since = tonumber(ARGV[10])
    if ARGV[9] == string.sub(incarnation, 33) and since >= floor and since <= top then after = ARGV[10]
    else isWhole, after = 1, '0' end
  end
  local reply, count = { incarnation, top, floor, isWhole, 0 }, 0
  if limit == 0 or top == 0 then return reply end
  if ARGV[11] then
    for i = 11, #ARGV do
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
end

local maxKeys, maxBytes, keepState = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local tombs = call('ZCARD', removed)
local live = call('ZCARD', log) - tombs
local body, flags, last = {}, {}, top
for i = 9, #ARGV, 3 do
  local key, publication, isRemoval = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1'
  local size, former = #key + #publication, call('HSTRLEN', values, key)
  local isTomb = former > 0 and call('ZSCORE', removed, key)
  local isLive = former > 0 and not isTomb
  if former > 0 then former = former + #key end
  local after = bytes - (isLive and former or 0) + size
  if not isRemoval and ((not isLive and live >= maxKeys) or after > maxBytes) then
    flags[#flags + 1] = '0'
  else
    -- A publish with an idempotency key has one publication.
    local refused = KEYS[6] and keep(KEYS[6], last + 1, fingerprint, keepMs)
    if not refused then
      refused = pcall('HSET', values, key, publication)
      if type(refused) == 'table' and KEYS[6] then forget(KEYS[6]) end
    end
    -- An ACL user without the right: nothing has changed.
    if type(refused) == 'table' then
      if last == top then return refused end
      break
    end
    last = last + 1
    local score = string.format('%.0f', last)
    call('ZADD', log, score, key)
    if isLive then live, bytes = live - 1, bytes - former end
    if isTomb then tombs, gone = tombs - 1, gone - former end
    if isRemoval then
      call('ZADD', removed, score, key)
      tombs, gone = tombs + 1, gone + size
    else
      if isTomb then call('ZREM', removed, key) end
      live, bytes = live + 1, bytes + size
    end
    flags[#flags + 1] = '1'
    body[#body + 1] = publicationHead(#publication)
    body[#body + 1] = publication
    while tombs > 0 and (tombs > maxKeys or bytes + gone > maxBytes) do
      local oldest = call('ZPOPMIN', removed)
      gone = gone - #oldest[1] - call('HSTRLEN', values, oldest[1])
      tombs, floor = tombs - 1, tonumber(oldest[2])
      call('HDEL', values, oldest[1])
      call('ZREM', log, oldest[1])
    end
  end
end
local count = last - top
if count > 0 then
  call('HINCRBY', meta, incarnation, count)
  call('HSET', sums, 'bytes', bytes, 'gone', gone, 'floor', string.format('%.0f', floor))
  for i = 1, 5 do pcall('PEXPIRE', KEYS[i], keepState) end
  pcall('PUBLISH', ARGV[3], positionHead(string.sub(incarnation, 33), top + 1) .. table.concat(body))
elseif top == 0 then
  call('PEXPIRE', meta, 120000)
end
return { incarnation, last, table.concat(flags) }
