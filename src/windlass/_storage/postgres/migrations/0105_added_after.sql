-- Functions only: flows that are added from outside wait for parts that are there. A flow that is not whole gives
-- its key up.
SELECT 1;
