-- What older processes may do here: see layout.py.

-- From now on only processes that know this layout may work here.
local function require_layout(layout)
  if not newer and tonumber(redis.call('GET', prefix .. 'finishes') or 0) < layout then
    redis.call('SET', prefix .. 'finishes', layout)
  end
end
