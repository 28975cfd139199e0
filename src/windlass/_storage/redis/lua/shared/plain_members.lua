-- Blocked members that were never changed and have no key: most. They are placed or ended together, without being read
-- as jobs. Callers treat the others one by one, and count what changes at the part, but for jobs of queues.
-- use: lines flows

local plain_members = {
  -- How a job without delay and expiry is due, as storing.lua says: 0, 0 and -1.
  DUE_AT_ONCE = '\0\0\0\0\0\0\0\0\0\255\255\255\255\255\255\255\255',
  LEAST = 88, -- every record is longer
  NEVER = '\0\0\0\0\0\0\0\0', -- the expiry of a job that has none
}

-- Place those of these jobs that also have no delay, expiry or limit. By positions, as `glance_asked` does. The
-- answer: their ids, and those of the others.
function plain_members.place(ids, flow)
  local take, pack, sub, byte, char = struct.unpack, struct.pack, string.sub, string.byte, string.char
  local placed, others, records, ready, n = {}, {}, {}, {}, 0
  local due, before = pack('>i8', flow.created), sub(place_at(flow.created, 0, '', ''), 1, 9)
  -- Of the job before: most are like it. Its queue with the length, its line, and where its task's length is; its
  -- priority and marks as they are stored, and its priority.
  local its_queue, line, size, its_priority, priority = '', nil, 49, '', nil
  local kept = read_all('HMGET', prefix .. 'state', ids)
  for i, asked in ipairs(read_all('HMGET', prefix .. 'jobs', ids)) do
    local id, flags, last = ids[i], byte(asked or '', -1), nil
    if flags and has(flags, BLOCKED) and not kept[i] and #asked > plain_members.LEAST
      and sub(asked, -39, -23) == plain_members.DUE_AT_ONCE then
      if sub(asked, 48, size) ~= its_queue then
        local high, low = byte(asked, 48, 49)
        size = 49 + high * 256 + low
        its_queue = sub(asked, 48, size)
        line = ready[sub(its_queue, 3)] or { n = 0 }
        ready[sub(its_queue, 3)] = line
      end
      local high, low = byte(asked, size + 2, size + 3)
      last = low and size + 3 + high * 256 + low
      if last and sub(asked, last + 1, last + 11) ~= its_priority then
        its_priority = sub(asked, last + 1, last + 11)
        priority = #its_priority == 11 and byte(its_priority, 11) == 0 and take('>i8', its_priority, 2)
      end
    end
    if last and priority and sub(asked, last + 14, last + 29) == id then
      n = n + 1
      placed[n], records[2 * n - 1] = id, id
      records[2 * n] = sub(asked, 1, 29) .. due .. sub(asked, 38, -2) .. char(flags - BLOCKED)
      local m = line.n + 2
      line.n, line[m - 1] = m, priority
      line[m] = before .. pack('>d', (take('>i8', asked, 21))) .. id .. '0'
    else
      others[#others + 1] = id
    end
  end
  wide('HSET', prefix .. 'jobs', records, 2)
  send('ZADD', ready, 2, prefix .. 'ready:')
  for queue, its in pairs(ready) do
    if its.n > 0 then
      hints.add(queue, its.n / 2)
      members.count_blocked(queue, -its.n / 2)
    end
  end
  return placed, others
end

-- End those of these jobs, whatever their delay and limits. `how`: as what the part counts them. The answer: their
-- ids, and those of the others.
function plain_members.finish(part, ids, how, reason)
  local take, sub, byte, char = struct.unpack, string.sub, string.byte, string.char
  local state = how == 'stopped' and CANCELLED or DISCARDED
  local front = char(state, reason ~= '' and REASON or 0)
  local back = struct.pack(BACK, 0, 0, 0, 0, now, 0, 0, 0, 0, 0, '', 0, '') .. reason
  local records, listed, gone, others, ended, n, at = {}, {}, {}, {}, {}, 0, string.format('%.0f', now)
  local line, its_queue -- of the job before: most are in the same queue
  local kept = read_all('HMGET', prefix .. 'state', ids)
  for i, asked in ipairs(read_all('HMGET', prefix .. 'jobs', ids)) do
    local id, flags = ids[i], asked and not kept[i] and byte(asked, -1)
    local marks, _, last
    if flags and has(flags, BLOCKED) and sub(asked, 12, 19) == plain_members.NEVER then
      marks, _, last = glance_asked(id, asked)
    end
    if marks and not has(marks, KEYED) then
      n = n + 1
      gone[n], records[2 * n - 1] = id, id
      records[2 * n] = front .. sub(asked, 20, last) .. sub(asked, -21, -2) .. char(flags - BLOCKED) .. back
      listed[2 * n - 1], listed[2 * n] = take('>i8', asked, 21), id
      local queue = take('>Hc0', asked, 48)
      if queue ~= its_queue then
        line, its_queue = ended[queue] or {}, queue
        ended[queue] = line
      end
      local m = #line
      line[m + 1], line[m + 2] = at, id
    else
      others[#others + 1] = id
    end
  end
  wide('HSET', prefix .. 'state', records, 2)
  wide('ZADD', prefix .. how .. ':' .. part.key, listed, 2)
  for queue, its in pairs(ended) do
    wide('ZADD', ended_line('m' .. state, queue), its, 2)
    note_ended('m' .. state, queue)
    count(queue, WAITING, -#its / 2)
    count(queue, state, #its / 2)
    members.count_blocked(queue, -#its / 2)
  end
  return gone, others
end
