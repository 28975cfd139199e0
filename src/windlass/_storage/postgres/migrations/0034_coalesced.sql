-- Only functions change: enqueues that a unique key answered with a stored job are counted.
SELECT 1;
