-- keys: under which people see what is made of arguments that nobody may read. Made when it is first
-- needed.
CREATE TABLE secrets (
    name text PRIMARY KEY,
    value text NOT NULL
);
