-- Functions only: what time alone makes claimable, and buckets after a clock was set back.
SELECT 1;
