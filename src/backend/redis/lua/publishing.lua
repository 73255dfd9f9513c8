-- publishing.lua: idempotency keys and offsets, for scripts that publish to rooms with history
-- or state. It follows stream.lua.
--
-- The value of an idempotency key is epoch:offset:fingerprint. events.lua and later versions may
-- append fields, each after a colon. A value of another form is of another version; it should begin
-- with '@'.

-- The answer if the key has been used: epoch and offset; '' and 0 if it has another fingerprint, ''
-- and 1 if another version of Fanfare wrote its value.
local function repeated(key, fingerprint)
  local was = call('GET', key)
  if not was then return nil end
  local epoch, offset, first = string.match(was, '^(%x+):(%d+):?([^:]*)')
  if not epoch then return { '', 1 } end
  if fingerprint ~= '' and first ~= '' and first ~= fingerprint then return { '', 0 } end
  return { epoch, tonumber(offset) }
end

-- An idempotency key is kept before its publication is stored, so that a key that Redis refuses to
-- keep refuses the publication. Returns the refusal.
local function keep(key, last, fingerprint, keepMs)
  local value = string.format('%s:%.0f:%s', string.sub(incarnation, 33), last, fingerprint)
  local refused = pcall('SET', key, value, 'PX', keepMs)
  return refused.err and refused
end

-- Redis has refused the publication. An ACL user without DEL has just been permitted to SET; until
-- that key expires, a repeated publish answers OUTCOME_UNKNOWN.
local function forget(key)
  local refused = pcall('DEL', key)
  if type(refused) == 'table' then pcall('SET', key, '@', 'PX', 1) end
end

-- Is the room at this position (epoch:offset)? Without an epoch, any counts.
local function isAt(expected, top)
  local epoch, offset = string.match(expected, '^(%x*):(%d+)$')
  return tonumber(offset) == top and (epoch == '' or epoch == string.sub(incarnation, 33))
end

-- Takes the next offsets: `count` of them, `added` is the same as a string. Returns the latest
-- offset before these, and whether the caller knew the incarnation.
local function advance(added, count, lastKey, kept)
  if #incarnation == 48 then
    -- If this fails, nothing has changed, because all other writes follow it.
    local top = call('HINCRBY', meta, incarnation, added) - 1 - count
    if top >= 0 then return top, true end
    call('HDEL', meta, incarnation)
  end
  local top = find(false, lastKey, kept)
  call('HINCRBY', meta, incarnation, added)
  return top, false
end
