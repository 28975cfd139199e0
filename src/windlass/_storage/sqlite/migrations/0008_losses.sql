-- What follows a lost run: 'fail'; NULL: another one.
ALTER TABLE jobs ADD COLUMN on_lost TEXT;
