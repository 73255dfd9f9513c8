-- members.lua: changes the users of a room and publishes the events in one step, so that the events
-- have the order of the changes.
--
-- KEYS     1 members: user -> member   2 owners: user -> number of sessions that have the user
--          3 the users of the session
--          if webhooks cover the room, those of `record` (record.lua, whose text comes first then):
--          4 sequence   5 partition, or in a cluster outbox   6 state of the partition
-- ARGV     1 channel   2 PUBLISH or SPUBLISH   3, 4 head of a join's and of a leave's publication
--          5 the size above which a room is large
--          6 number of users to remove from the session, in any order
--          then for each change: kind, user, member
-- kind     join             the session has the user; the member is the latest
--          restore          the same after an outage; an older member does not replace the latest
--          announceJoin     like join, and publishes the event even if Redis has the user
--          leave            the session no longer has the user
--          leaveLost        like leave; Redis may have lost that the session had the user, and then it
--                           publishes the event unless another session has the user
--          announceLeave    like leave, and publishes an event in any case: a join if another session
--                           has the user
-- returns  joins, leaves, events left out, users that the session still has, then the events that
--          Redis refused to publish: 1 or 2 (join or leave), user, member of each; the number of
--          events in the room's outbox
--
-- Every change may be made again, because only a change of the session's set has an effect. If
-- Redis refuses PUBLISH (an ACL user without the right), the changes stand, and the caller
-- announces the refused events later.
local members, owners, own = KEYS[1], KEYS[2], KEYS[3]
local max = tonumber(ARGV[5])
local counts = { 0, 0, 0 }
local body, bytes, events, refused = {}, 0, {}, {}

local function publish()
  if bytes == 0 then return end
  local answer = redis.pcall(ARGV[2], ARGV[1], table.concat(body))
  if type(answer) == 'table' then
    for i, part in ipairs(events) do
      refused[#refused + 1] = part
      if i % 3 == 1 then counts[part] = counts[part] - 1 end
    end
  end
  body, bytes, events = {}, 0, {}
end

-- size: number of users in the room, with that member
local function announce(event, user, member, size)
  if size > max then
    counts[3] = counts[3] + 1
    return
  end
  counts[event] = counts[event] + 1
  local length = #ARGV[2 + event] + #member
  body[#body + 1] = publicationHead(length)
  body[#body + 1] = ARGV[2 + event]
  body[#body + 1] = member
  events[#events + 1], events[#events + 2], events[#events + 3] = event, user, member
  bytes = bytes + 4 + length
  if bytes > 32768 then publish() end
end

-- A change of the room is recorded, even if the room is large or Redis refuses to publish. After an
-- outage, what Redis has forgotten is a change, too. fields: JSON of the user
local function note(kind, fields)
  if not KEYS[4] then return end
  local room = string.match(KEYS[4], '{(.-)}')
  local count = redis.call('HLEN', members)
  fields = string.format('"room":"%s",', room) .. fields .. string.format(',"count":%.0f', count)
  record(KEYS[4], KEYS[5], KEYS[6], kind, fields)
end

local function enter(what, user, member)
  local first = redis.call('SADD', own, user) == 1 and redis.call('HINCRBY', owners, user, 1) == 1
  if first or what == 'join' or what == 'announceJoin' then redis.call('HSET', members, user, member) end
  -- The member is an object that begins with the user.
  if first then note('member.joined', string.sub(member, 2, -2)) end
  if first or what == 'announceJoin' then
    announce(1, user, member, redis.call('HLEN', members))
  end
end

-- The caller has removed the user from the session's set.
local function exit(user)
  if redis.call('HINCRBY', owners, user, -1) > 0 then return end
  local member = redis.call('HGET', members, user)
  local size = redis.call('HLEN', members)
  redis.call('HDEL', owners, user)
  redis.call('HDEL', members, user)
  note('member.left', '"user":' .. user)
  if member then announce(2, user, member, size) end
end

for i = 7, #ARGV, 3 do
  local what, user = ARGV[i], ARGV[i + 1]
  if what == 'leave' then
    if redis.call('SREM', own, user) == 1 then exit(user) end
  elseif what == 'leaveLost' or what == 'announceLeave' then
    local isOut = redis.call('SREM', own, user) == 1
    if isOut then exit(user) end
    local member = redis.call('HGET', members, user)
    if member and what == 'announceLeave' then
      announce(1, user, member, redis.call('HLEN', members))
    elseif not member and not isOut then
      announce(2, user, ARGV[i + 2], redis.call('HLEN', members) + 1)
    end
  else
    enter(what, user, ARGV[i + 2])
  end
end
if ARGV[6] ~= '0' then
  for _, user in ipairs(redis.call('SPOP', own, ARGV[6])) do exit(user) end
end
publish()
return { counts[1], counts[2], counts[3], redis.call('SCARD', own), refused, KEYS[4] and waiting(KEYS[5]) or 0 }
