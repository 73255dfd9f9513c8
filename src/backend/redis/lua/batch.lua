-- batch.lua: the framing of batch.js, for scripts that publish. Their text follows this file's.
local LARGE = '\128\0\0\0'
local function positionHead(epoch, offset) return '\64\0\0\24' .. epoch .. struct.pack('>I8', offset) end
local function firstOffset(message) return struct.unpack('>I8', message, 21) end
local function publicationHead(length) return struct.pack('>I4', length) end
-- Publications with an audience (publication.js) stand after a version item.
local RESTRICTED = '\192\0\0\2'
local function isRestricted(publication) return string.byte(publication) % 8 == 7 end
