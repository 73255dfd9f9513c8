-- publish-state.lua: publishes to a room with state, in one atomic step. The texts of batch.lua,
-- stream.lua, publishing.lua and state.lua come before this one.
--
--   KEYS  1 to 5 of state.lua   6 idempotency key, if there is one
--   ARGV  1, 2 incarnation and epochs (stream.lua)
--         3 channel   4 milliseconds to keep the idempotency key, a space, the fingerprint of the
--         publication   5 most keys   6 most bytes   7 milliseconds to keep the state
--         8 the room's position for which the publication is meant, epoch:offset; '': any
--         then for each publication: key, publication, '1' if it removes the key
--   reply incarnation, offset of the last accepted publication, and for each '1' if it was
--         accepted, else '0'; of a repeated key as in publishing.lua, and ''; incarnation, latest
--         offset and 'x' if the room is not at the position

local idempotencyKey = KEYS[6]
local channel, keeping = ARGV[3], ARGV[4]
local maxKeys, maxBytes, keepState = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local expected = ARGV[8]
local FIRST = 9

local keepMs, fingerprint
if idempotencyKey then
  keepMs, fingerprint = string.match(keeping, '^(%d+) (.*)$')
  local first = repeated(idempotencyKey, fingerprint)
  if first then return { first[1], first[2], '' } end
end

local top = whole(advance('0', 0, 5, sums), false)
if expected ~= '' and not isAt(expected, top) then
  if top == 0 then call('PEXPIRE', meta, 120000) end
  return { incarnation, top, 'x' }
end
local tombs = call('ZCARD', removed)
local live = call('ZCARD', log) - tombs

-- A removal reaches those who could see the key: it has the audience of what it removes. That
-- follows 12 bytes, the last of which is the length of the sender, and the sender. Bytes 7 and 8
-- have its length (publication.js).
local function audienceOf(publication)
  local start = 12 + (string.byte(publication, 12) or 0)
  local length = start < #publication and isRestricted(publication) and struct.unpack('>I2', publication, 8) or 0
  return start, string.sub(publication, start + 1, start + length)
end
local function withAudienceOf(publication, former)
  local start, own = audienceOf(publication)
  local _, audience = audienceOf(former)
  if own == audience then return publication end
  local first = string.byte(publication)
  local kind = string.char(first - first % 8 + (audience == '' and 1 or 7))
  return kind .. string.sub(publication, 2, 7) .. struct.pack('>I2', #audience) ..
    string.sub(publication, 10, start) .. audience .. string.sub(publication, start + #own + 1)
end

local body, flags, last = {}, {}, top
for i = FIRST, #ARGV, 3 do
  local key, publication, isRemoval = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1'
  local former = call('HSTRLEN', values, key)
  if isRemoval and former > 0 then publication = withAudienceOf(publication, call('HGET', values, key)) end
  local size = #key + #publication
  local isTomb = former > 0 and call('ZSCORE', removed, key)
  local isLive = former > 0 and not isTomb
  if former > 0 then former = former + #key end
  local after = bytes - (isLive and former or 0) + size
  if not isRemoval and ((not isLive and live >= maxKeys) or after > maxBytes) then
    flags[#flags + 1] = '0'
  else
    -- A publish with an idempotency key has one publication.
    local refused = idempotencyKey and keep(idempotencyKey, last + 1, fingerprint, keepMs)
    if not refused then
      refused = pcall('HSET', values, key, publication)
      if type(refused) == 'table' and idempotencyKey then forget(idempotencyKey) end
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
    if isRestricted(publication) then body[#body + 1] = RESTRICTED end
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
  pcall('PUBLISH', channel, positionHead(string.sub(incarnation, 33), top + 1) .. table.concat(body))
elseif top == 0 then
  call('PEXPIRE', meta, 120000)
end
return { incarnation, last, table.concat(flags) }
