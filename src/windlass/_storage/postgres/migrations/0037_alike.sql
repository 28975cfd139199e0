-- Only functions change: jobs that differ in their arguments alone are stored by a shorter statement.
SELECT 1;
