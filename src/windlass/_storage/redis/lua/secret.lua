-- The secret of this installation, or ''.
-- reads only
return redis.call('GET', prefix .. 'secret') or ''
