-- redis-history.lua: publishes to a room with history, or reads it, in one atomic step.
--
--   KEYS  1 meta   2 stream   3 idempotency key, where there is one
--   ARGV  1 the fence as the caller knows it, or ''; 'trust': the epoch outlives the server
--         2 an epoch to begin where one has to: random, and never given twice
--         3 milliseconds to keep meta
--         4 channel, 5 the caller's clock in milliseconds, 6 publications in the body, 0: it is one that is too large to
--           announce, 7 publications to keep, 8 milliseconds to keep them, 9 body, 10 milliseconds to keep the idempotency key
--     or  4 '', 5 after, 6 limit, 7 bytes
--   reply  epoch, offset of the first published, the fence where it is not the caller's
--     or   epoch, offset of the latest, the fence or '', messages, newest first
--
-- A fence names a server and its line of replication: where meta was written under another, Redis has come back from an older
-- snapshot or a replica was promoted. What others were told may be gone, so the epoch ends. A caller that does not know
-- the fence, or an old one, does no harm: Redis itself is asked, in the same step.
--
-- The stream has messages as they were announced; the id of each is the offset of its last publication. The body is
-- publications with their lengths in front; with the position before it it is a message (redis-message.js).

local call, meta, stream, key = redis.call, KEYS[1], KEYS[2], KEYS[3]
if key then
  local was = call('GET', key)
  if was then return { string.sub(was, 1, 16), tonumber(string.sub(was, 18)) } end
end

local at = call('HMGET', meta, 'f', 'e', 's', 't')
local fence, epoch, top = ARGV[1], at[2], tonumber(at[3])
if at[1] ~= fence then
  if fence == 'trust' then
    -- A room's first epoch under another fence goes on.
    fence = at[1] or fence
  else
    -- Half of each is random enough.
    local server, line = call('INFO', 'server'), call('INFO', 'replication')
    fence = string.match(server, 'run_id:(%x+)'):sub(1, 16) .. string.match(line, 'master_replid:(%x+)'):sub(1, 16)
  end
  if at[1] ~= fence then
    epoch, top, at[4] = ARGV[2], 0, false
    call('HSET', meta, 'f', fence, 'e', epoch, 's', 0)
    call('UNLINK', stream)
  end
end

if ARGV[4] == '' then
  -- A write, so that it is refused where this is no primary, or one that has lost its replicas: it may not have the latest.
  call('PEXPIRE', meta, ARGV[3])
  local bytes, messages, expected, chunk = tonumber(ARGV[7]), {}, top, 8
  local lowest = math.max(tonumber(ARGV[5]), top - ARGV[6])
  local isDone = expected <= lowest
  while not isDone do
    local entries = call('XREVRANGE', stream, expected, '-', 'COUNT', chunk)
    local largest = 1
    isDone = #entries < chunk
    for _, entry in ipairs(entries) do
      local message = entry[2][2]
      bytes = bytes - #message
      -- One at least. None behind a gap: somebody else has been at the stream.
      if (bytes < 0 and #messages > 0) or tonumber(string.match(entry[1], '^%d+')) ~= expected then
        isDone = true
        break
      end
      messages[#messages + 1] = message
      largest = math.max(largest, #message)
      expected = struct.unpack('>I8', message, 21) - 1
      if expected <= lowest then
        isDone = true
        break
      end
    end
    -- More at a time where they are small, but not many times what may be sent.
    chunk = math.max(1, math.min(64, math.floor(bytes / largest)))
  end
  return { epoch, top, fence == ARGV[1] and '' or fence, messages }
end

local count, body = tonumber(ARGV[6]), ARGV[9]
local announced = body
if count == 0 then count, announced = 1, '\128\0\0\0' end
local position = struct.pack('>I4c16I8', 0x40000018, epoch, top + 1)
local last = top + count
-- Whole nodes are trimmed: readers know the size. Redis 6.0 has no MINID, and keeps as many messages: more than asked.
local added = redis.pcall('XADD', stream, 'MINID', '~', math.max(0, last - ARGV[7] + 1), last, 'm', position .. body)
if type(added) == 'table' then call('XADD', stream, 'MAXLEN', '~', ARGV[7], last, 'm', position .. body) end
call('PEXPIRE', stream, ARGV[8])
if not at[4] or math.abs(ARGV[5] - at[4]) > 3600000 then
  -- Once an hour is often enough for what is kept a day at least.
  call('HSET', meta, 's', last, 't', ARGV[5])
  call('PEXPIRE', meta, ARGV[3])
else
  call('HSET', meta, 's', last)
end
if key then call('SET', key, string.format('%s:%.0f', epoch, last), 'PX', ARGV[10]) end
-- Last: whatever Redis refuses has been refused before anybody hears of it.
call('PUBLISH', ARGV[4], position .. announced)
if fence == ARGV[1] then return { epoch, top + 1 } end
return { epoch, top + 1, fence }
