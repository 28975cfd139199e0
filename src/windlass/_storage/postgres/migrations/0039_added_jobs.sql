-- Only functions change: the end of a claim may bring a list of jobs. Workers of the version before say
-- one job without a list, which is read as before.
SELECT 1;
