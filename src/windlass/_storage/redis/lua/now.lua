-- reads only
-- The server's clock, in microseconds.
return now
