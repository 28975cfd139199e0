-- The record of who ordered what. A note is msgpack [id, who, what, subject, detail]; '' is none.

local audits = {}

-- What is stored under this note's id: instant, count, answers; nil: it is new, or there is no note.
function audits.known(note)
  local record = note ~= '' and redis.call('HGET', prefix .. 'audit', cmsgpack.unpack(note)[1])
  if record then
    local at, count, _, rest = struct.unpack('>dI4I4c0', record)
    return at, count, string.sub(record, rest)
  end
end

-- Store a note with how many it took effect on, once; `at` is now unless it is from elsewhere.
function audits.keep(note, count, answers, at)
  if note == '' or count == 0 or audits.known(note) then
    return false
  end
  local id, _, _, subject = unpack(cmsgpack.unpack(note))
  local number = redis.call('INCR', prefix .. 'audit_seq')
  local record = struct.pack('>dI4I4c0', at or now, count, #note, note) .. (answers or '')
  redis.call('HSET', prefix .. 'audit', id, record)
  redis.call('ZADD', prefix .. 'audits', number, id)
  redis.call('ZADD', prefix .. 'audits_of:' .. subject, number, id)
  redis.call('ZADD', prefix .. 'audit_ages', at or now, id)
  return true
end

function audits.forget(id)
  local _, _, note = struct.unpack('>dI4I4c0', redis.call('HGET', prefix .. 'audit', id))
  redis.call('HDEL', prefix .. 'audit', id)
  redis.call('ZREM', prefix .. 'audits', id)
  redis.call('ZREM', prefix .. 'audits_of:' .. cmsgpack.unpack(note)[4], id)
  redis.call('ZREM', prefix .. 'audit_ages', id)
end
