-- Functions only: flows that are added from outside wait for parts that are there. A flow that is not whole gives
-- its key up. Limited members of a cancelled flow end in portions.
SELECT 1;
