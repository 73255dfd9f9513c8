-- record.lua: records an event for webhooks in the script that decides it, so that an event is
-- recorded if and only if it happened. The text of that script follows this file's. Two lines come
-- first: IS_SHARDED, MAX_ENTRIES of a partition or outbox, and MAX_PAYLOADS: while either is
-- longer, it takes the size of a message instead of its payload. So it is bounded in bytes, too.
--
-- An event gets the next number of its room's sequence. The sequence is a hash:
--   epoch   names the life of the sequence: the time of its beginning, above that of the one before
--           it, unless Redis has forgotten that one
--   fence   of the Redis that began it. A replica that was promoted, or a Redis that has restored a
--           snapshot, may have forgotten numbers that were used: it begins another life
--   seq     the latest number
--   mark    of the latest event with one: events.lua
--
-- A single Redis has the partitions beside the rooms, and the event goes into its partition at
-- once. In a cluster it waits in an outbox in the slot of its room: outbox.lua and append.lua move
-- it.
local SEQUENCE_MS = 172800000 -- longer than an event may wait for an endpoint by default
local life

local function liveOf(sequence)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local replication = redis.pcall('INFO', 'replication')
  local fence = type(replication) == 'string' and string.match(replication, 'master_replid:(%x+)') or ''
  local was = redis.call('HMGET', sequence, 'epoch', 'fence')
  local epoch = was[1]
  if not epoch or was[2] ~= fence then
    epoch = string.format('%.0f', math.max(now, (tonumber(epoch) or 0) + 1))
    redis.call('HSET', sequence, 'epoch', epoch, 'fence', fence, 'seq', 0)
  end
  redis.call('PEXPIRE', sequence, SEQUENCE_MS)
  return { epoch = epoch, now = string.format('%.0f', now) }
end

local LARGE = { ['message.published'] = ',"payload":', ['client.event'] = ',"data":' }

-- length: of the partition or outbox. In a JSON text, a quote within a string is escaped, so the
-- first `,"payload":` and the last `,"seq":` are the event's own.
local function fitting(length, body)
  local large = length >= MAX_PAYLOADS and LARGE[string.match(body, '^{"type":"([^"]*)"')]
  if not large then return body end
  local head, from = string.find(body, large, 1, true)
  if not head then return body end
  local tail = string.match(body, '^.*(),"seq":')
  return string.sub(body, 1, head - 1) .. string.format(',"bytes":%.0f', tail - from - 1) ..
    string.sub(body, tail)
end

-- Adds an entry to a partition. Above the bound the oldest ones go, and are counted.
local function append(partition, state, body)
  -- A script cannot take back what it has changed before. So if Redis refuses, the event counts as
  -- lost.
  local refused = redis.pcall('XADD', partition, '*', 'e', fitting(redis.call('XLEN', partition), body))
  if type(refused) == 'table' then
    redis.pcall('HINCRBY', state, 'lost', 1)
  elseif redis.call('XLEN', partition) > MAX_ENTRIES then
    local dropped = redis.call('XTRIM', partition, 'MAXLEN', '~', MAX_ENTRIES)
    if dropped > 0 then redis.call('HINCRBY', state, 'lost', dropped) end
  end
end

-- sequence, out (a partition, or in a cluster an outbox), state of the partition; fields: JSON
-- without braces
local function record(sequence, out, state, kind, fields)
  life = life or liveOf(sequence)
  local seq = redis.call('HINCRBY', sequence, 'seq', 1)
  local body = string.format('{"type":"%s",', kind) .. fields ..
    string.format(',"seq":%.0f,"epoch":"%s","at":%s}', seq, life.epoch, life.now)
  if IS_SHARDED then
    -- append.lua finds the hole in the numbers, and counts it.
    body = fitting(redis.call('LLEN', out), body)
    local length = redis.call('RPUSH', out, string.format('%s:%.0f:', life.epoch, seq) .. body)
    if length > MAX_ENTRIES then redis.call('LPOP', out) end
  else
    append(out, state, body)
  end
end

-- The number of events that wait in the room's outbox.
local function waiting(out)
  return IS_SHARDED and redis.call('LLEN', out) or 0
end
