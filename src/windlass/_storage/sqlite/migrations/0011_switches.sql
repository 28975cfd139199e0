-- What operators have switched off for the whole storage, and since when: 'schedules'.
CREATE TABLE switches (
    name TEXT PRIMARY KEY,
    at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
