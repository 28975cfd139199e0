-- keys: under which people see what is made of arguments that nobody may read. Made when it is first
-- needed.
CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
