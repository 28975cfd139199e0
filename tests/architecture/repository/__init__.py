"""Files beside the code: workflows, the lock file, changelog fragments, and what `deploy` has."""
