-- Functions only: a history keeps its errors apart from what ended without one.
SELECT 1;
