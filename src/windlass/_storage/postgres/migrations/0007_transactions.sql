-- Made functions, which are in functions/ now: they are made anew whenever the version moves.
SELECT;
