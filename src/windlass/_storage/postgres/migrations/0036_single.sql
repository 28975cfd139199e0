-- Only functions change: one plain job has a shorter one.
SELECT 1;
