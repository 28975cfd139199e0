-- The facts that handlers noted: in the run that ended last, and in each that did not succeed. JSON.
ALTER TABLE jobs ADD COLUMN metadata TEXT;
ALTER TABLE history ADD COLUMN metadata TEXT;
