-- Functions only: flows are added to a running one from outside.
SELECT 1;
